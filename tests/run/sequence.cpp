// Sequence parallelism (passes/sequence_cut.h): between shared products each rank along `tensor`
// has its rows only, with the losses and weights of one rank.
#include "compile/described_gpu.h"
#include "refusal.h"
#include "run/low_precision.h"
#include "run/memory_fit.h"

using namespace dltrain;

namespace {

const std::string kRowTokens =
    "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}";

const std::vector<Network>& row_networks() {
  static const std::vector<Network> all{
      {"gpt2",
       {"model={type: gpt2, num_layers: 2, hidden_size: 16, num_heads: 4, max_positions: 8, "
        "vocab_size: 29, dropout: 0.1}",
        kRowTokens}},
      {"llama",
       {"model={type: llama, num_layers: 2, hidden_size: 16, num_heads: 4, num_kv_heads: 2, "
        "intermediate_size: 20, max_positions: 8, vocab_size: 29, attention_dropout: 0.1, "
        "head_norm: {type: rms_norm, name: .}}",
        kRowTokens}},
      {"bert",
       {"model={type: bert, num_layers: 2, hidden_size: 16, num_heads: 4, max_positions: 8, "
        "vocab_size: 29, dropout: 0.1}",
        kRowTokens}},
      // Layers share their weights, those of norms too.
      {"albert",
       {"model={type: albert, num_layers: 2, hidden_size: 16, embedding_size: 8, num_heads: 4, "
        "max_positions: 8, vocab_size: 29}",
        kRowTokens}},
      // A norm reads all rows first, and those of a rank later.
      {"shared norm",
       {"model={vocab_size: 29, layers: [{embedding: {embedding_dim: 16}}, {layer_norm: {}, name: "
        "z}, {linear: 32}, relu, {linear: 16}, {layer_norm: {}, share: z}, {lm_head: {}}]}",
        kRowTokens}},
      // Routers and experts read what is gathered.
      {"experts",
       {"model.layers=[{embedding: {embedding_dim: 16}}, {repeat: {times: 2, layers: [{residual: "
        "[layer_norm, {linear: 48}, {attention: {num_heads: 4, causal: true}}, {linear: 16}]}, "
        "{residual: [layer_norm, {moe: {num_experts: 6, experts_per_token: 2, intermediate_size: "
        "12}}]}]}}, {lm_head: {}}]",
        kRowTokens}},
  };
  return all;
}

const std::string kRowSteps = "training={global_batch_size: 24, max_steps: 20, max_grad_norm: 0.5}";

std::vector<std::string> over_rows(int ranks, std::vector<std::string> more = {}) {
  more.push_back(
      fmt::format("parallelism={{tensor: {}, sequence_parallel: true, bucket_mb: 0.002}}", ranks));
  return more;
}

void check_rows(const LayoutRun& rows, const LayoutRun& one) {
  check_close(rows, one, kToleranceOfF32);
}

size_t work_bytes(const LayoutRun& run) {
  return run.report.work_bytes;
}

// Returns the messages of a rank of two, along which the model is divided for GPUs, in order.
std::vector<std::string> messages_for_gpus(const std::string& sizes, int rank) {
  const Network network{
      "llama",
      {fmt::format(
           "model={{type: llama, num_layers: 1, max_positions: 4096, vocab_size: 32000, {}}}",
           sizes),
       "data.train={type: synthetic_tokens, vocab_size: 32000, length: 4096, samples: 8}",
       "parallelism={tensor: 2, sequence_parallel: true}", "precision.compute=bf16",
       "training={global_batch_size: 1, max_steps: 1}"}};
  Experiment experiment = layout_experiment(network, {});
  const Session session =
      open_planned_rank(experiment,
                        {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()},
                         .gpu = find_gpus("h100-80g").front()},
                        2, rank);
  std::vector<std::string> out;
  for (const Node& node : session.executor->training().graph.nodes) {
    if (node.op->message != MessageKind::none) {
      out.push_back(fmt::format("{} of {}", node.op->name, node.layer));
    }
  }
  return out;
}

}  // namespace

TEST_CASE("ranks with shards of different sizes cut messages of products alike") {
  const auto messages = [](int width, int rank) {
    return messages_for_gpus(
        fmt::format("hidden_size: 16384, num_heads: 128, num_kv_heads: 8, intermediate_size: {}",
                    width),
        rank);
  };
  const auto even = messages(512, 0), uneven = messages(513, 0);
  CHECK(even == messages(512, 1));
  CHECK(uneven == messages(513, 1));
  CHECK(uneven.size() < even.size());  // products of unequal shards stay whole
}

TEST_CASE("networks train with rows between shared products, with the losses of one rank") {
  std::vector<Network> all = row_networks();
  all.insert(all.end(), networks().begin(), networks().begin() + 2);
  for (const Network& network : all) {
    const std::vector<std::string> steps{kRowSteps};
    const LayoutRun one = layout_run(network, 1, steps);
    for (const auto& [ranks, tensor] : {std::pair(2, 2), {4, 2}, {4, 4}}) {
      INFO(network.name << ", " << ranks << " ranks, tensor " << tensor);
      const bool statistics = network.name == std::string("convnet");
      if (statistics && ranks != tensor) continue;  // of a micro-batch
      check_rows(layout_run(network, ranks, over_rows(tensor, steps)), one);
    }
  }
}

TEST_CASE("samples or tokens are divided, whichever can be") {
  const Network& gpt = row_networks()[0];
  const LayoutRun one = layout_run(gpt, 1, {});
  for (int micro : {1, 2, 3, 4}) {
    INFO("micro-batches of " << micro);
    check_rows(
        layout_run(gpt, 2, over_rows(2, {fmt::format("training.micro_batch_size={}", micro)})),
        one);
  }
}

TEST_CASE("rows between shared products work with other axes, precisions and recomputation") {
  const std::vector<std::pair<int, std::string>> variations{
      {4, "parallelism.context=2"},      {4, "parallelism.pipeline=2"},
      {4, "parallelism.zero_stage=1"},   {4, "parallelism.zero_stage=3"},
      {2, "memory.recompute=full"},      {2, "memory.recompute=auto"},
      {2, "memory.recompute=selective"}, {2, "memory.recompute=blocks"},
      {2, "precision.compute=bf16"},     {2, "precision={compute: bf16, residual: bf16}"},
      {2, "training.micro_batch_size=6"}};
  for (const Network* network : {&row_networks()[0], &row_networks()[1]}) {
    for (const auto& [ranks, variation] : variations) {
      INFO(network->name << ", " << variation);
      const bool low = variation.find("bf16") != std::string::npos;
      std::vector<std::string> alone;
      if (ranks == 2) alone.push_back(variation);
      const LayoutRun one = layout_run(*network, 1, alone);
      std::vector<std::string> rows = over_rows(2);
      rows.push_back(variation);
      check_close(layout_run(*network, ranks, rows), one,
                  low ? low_precision(*network, {}, kBitsOfBf16, 2) : kToleranceOfF32);
    }
  }
}

TEST_CASE("products that are cut into pieces have the losses of whole ones") {
  const std::string pieces = "parallelism.product_pieces=2";
  for (const Network& network : row_networks()) {
    const std::vector<std::string> steps{kRowSteps};
    const LayoutRun one = layout_run(network, 1, steps);
    for (const auto& [ranks, tensor] : {std::pair(2, 2), {4, 2}, {4, 4}}) {
      INFO(network.name << ", " << ranks << " ranks, tensor " << tensor);
      const LayoutRun whole = layout_run(network, ranks, over_rows(tensor, steps));
      const LayoutRun cut = layout_run(network, ranks, over_rows(tensor, {kRowSteps, pieces}));
      check_rows(cut, one);
      CHECK(cut.report.kernel_calls > whole.report.kernel_calls);
      CHECK(cut.sent_within == Approx(whole.sent_within).epsilon(1e-4));  // with agreements
    }
  }
  for (const char* variation :
       {"training.micro_batch_size=1", "training.micro_batch_size=3", "memory.recompute=full",
        "memory.recompute=blocks", "memory.recompute=selective", "precision.compute=bf16"}) {
    INFO(variation);
    const bool low = variation == std::string("precision.compute=bf16");
    const Network& llama = row_networks()[1];
    check_close(layout_run(llama, 2, over_rows(2, {variation, pieces})),
                layout_run(llama, 1, {variation}),
                low ? low_precision(llama, {}, kBitsOfBf16, 2) : kToleranceOfF32);
  }
  for (const char* variation :
       {"parallelism.pipeline=2", "parallelism={pipeline: 2, pipeline_schedule: zero_bubble}",
        "parallelism.context=2", "parallelism.zero_stage=3"}) {
    INFO(variation);
    check_rows(layout_run(row_networks()[0], 4,
                          over_rows(2, {variation, pieces, "training.micro_batch_size=3"})),
               layout_run(row_networks()[0], 1, {}));
  }
}

TEST_CASE("an evaluation of rows is that of one rank, also of a last batch that is shorter") {
  const std::vector<std::string> eval{
      "data.eval={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 13, seed: 2}",
      "training={global_batch_size: 24, max_steps: 2}", "evaluation.eval_steps=1",
      "evaluation.metrics=[accuracy]"};
  const LayoutRun one = layout_run(row_networks()[0], 1, eval);
  CHECK(layout_run(row_networks()[0], 4, over_rows(2, eval)).evaluation ==
        Approx(one.evaluation).epsilon(1e-6));
}

TEST_CASE("rows take less memory for activations") {
  const Network gpt{"gpt2",
                    {"model={type: gpt2, num_layers: 6, hidden_size: 64, num_heads: 4, "
                     "max_positions: 64, vocab_size: 29, dropout: 0.1}",
                     "data.train={type: synthetic_tokens, vocab_size: 29, length: 64, samples: 96}",
                     "training={global_batch_size: 8, max_steps: 1}"}};
  for (const char* mode : {"none", "blocks"}) {
    INFO(mode);
    const std::string recompute = fmt::format("memory.recompute={}", mode);
    const LayoutRun whole = layout_run(gpt, 4, {"parallelism.tensor=4", recompute});
    const LayoutRun rows = layout_run(gpt, 4, over_rows(4, {recompute}));
    check_rows(rows, whole);
    CAPTURE(work_bytes(whole), work_bytes(rows));
    CHECK(work_bytes(rows) < 0.65 * work_bytes(whole));
  }
}

// Korthikanti et al. 2022, section 4.2.2: the four sums of a layer (attention and hidden layer, in
// the forward and the backward) become as many gathers and reduce-scatters. Two gathers are
// repeated for the gradients of weights instead of keeping what they gathered.
TEST_CASE("messages of sums and of rows have the bytes of their formulas") {
  constexpr size_t kTokens = 16, kBatch = 8, kSteps = 3;
  constexpr size_t kWidth = 64;  // vectors of it need no alignment in a message
  for (const size_t layers : {1, 2, 5}) {
    for (const auto& [ranks, micro_batch] : {std::pair<size_t, size_t>(2, 8), {2, 4}, {4, 2}}) {
      INFO(layers << " layers, " << ranks << " ranks, micro-batches of " << micro_batch);
      const Network gpt{
          "gpt2",
          {fmt::format("model={{type: gpt2, num_layers: {}, hidden_size: {}, num_heads: 4, "
                       "max_positions: {}, vocab_size: 29}}",
                       layers, kWidth, kTokens),
           fmt::format("data.train={{type: synthetic_tokens, vocab_size: 29, length: {}, samples: "
                       "96}}",
                       kTokens),
           fmt::format("training={{global_batch_size: {}, micro_batch_size: {}, max_steps: {}}}",
                       kBatch, micro_batch, kSteps)}};
      const auto check = [&](const std::string& layout, size_t reduced, size_t scattered,
                             size_t gathered) {
        const LayoutRun run =
            layout_run(gpt, static_cast<int>(ranks),
                       {fmt::format("parallelism={{tensor: {}, {}}}", ranks, layout)});
        const Traffic& traffic = run.report.traffic;
        CHECK(traffic.reduced == reduced);
        CHECK(traffic.scattered == scattered);
        CHECK(traffic.gathered == gathered);
        const size_t sent = (2 * reduced + scattered + gathered) / ranks * (ranks - 1);
        CHECK(traffic.sent() == static_cast<double>(sent));
        // The ranks have sent this in all steps, and the agreements of the training loop.
        CHECK(run.sent_within >= kSteps * sent);
        CHECK(run.sent_within < kSteps * (sent + 200));
      };
      const size_t values = kBatch * kTokens * kWidth * sizeof(float);
      // The embedding sums the parts of its table in the forward, the head those of its gradient.
      const size_t sums = (4 * layers + 2) * values;
      const size_t losses = 5 * kBatch * kTokens * ranks * sizeof(float);
      const size_t norm = sizeof(double);
      check("sequence_parallel: false", sums + norm, 0, losses);
      // The gradients of two norms and of two biases a layer, of the last norm and of the positions
      // are sums over rows, in every micro-batch.
      const size_t of_rows = (6 * layers + 2 + kTokens) * kWidth * sizeof(float);
      check("sequence_parallel: true", kBatch / micro_batch * of_rows + norm, sums,
            sums + (2 * layers + 1) * values + losses);
    }
  }
}

TEST_CASE("rows that cannot be divided are refused at the key") {
  const auto refused = [](const std::vector<std::string>& overrides, const std::string& why) {
    const auto open = [&] {
      run_rank_threads(3, [&](ThreadCollectives& ranks) {
        Experiment experiment = layout_experiment(networks()[0], overrides);
        open_session(experiment, layout_options(ranks));
      });
    };
    CHECK_THAT(refusal_of(open, ExitCode::usage), Catch::Matchers::Contains(why));
  };
  refused(over_rows(3, {"training.micro_batch_size=2"}), "sequence_parallel: no sum of partial");
  refused({"parallelism.sequence_parallel=true"}, "no effect with tensor: 1");
  refused({"parallelism={tensor: 2, product_pieces: 2}"},
          "product_pieces has no effect without sequence_parallel");
  // Without sums there is nothing to divide.
  const Network columns{"columns",
                        {"model.layers=[flatten, {linear: 6}]", networks()[0].overrides[1]}};
  check_rows(layout_run(columns, 2, over_rows(2)), layout_run(columns, 1, {}));
}

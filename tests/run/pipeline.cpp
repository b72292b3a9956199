// Pipeline parallelism (passes/stage_cut.h): losses, weights and checkpoints are those of one rank.
#include "checkpoint/checkpoint_writer.h"
#include "refusal.h"
#include "run/layout_run.h"
#include "run/memory_fit.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

// Six micro-batches of four samples for one data-parallel rank.
const std::vector<std::string> kMicro{"training.micro_batch_size=4"};

std::vector<std::string> over_stages(int stages, std::vector<std::string> more = {}) {
  more.insert(more.begin(), kMicro.begin(), kMicro.end());
  more.push_back(fmt::format("parallelism.pipeline={}", stages));
  more.push_back("parallelism.bucket_mb=0.002");
  return more;
}

std::vector<std::string> interleaved(int ranks, int chunks, std::vector<std::string> more = {}) {
  more.push_back("parallelism.pipeline_schedule=interleaved");
  more.push_back(fmt::format("parallelism.virtual_stages={}", chunks));
  return over_stages(ranks, std::move(more));
}

// Nine layers with parameters, and an output that passes through stages that do not read it.
const Network& deep() {
  static const Network network{
      "deep",
      {"model.layers=[flatten, {linear: 24, name: first}, gelu, {dropout: 0.2}, {linear: 16}, "
       "gelu, "
       "{linear: 16}, tanh, {linear: 16}, gelu, {linear: 24, name: far}, {type: add, inputs: "
       "[first, "
       "far]}, gelu, {linear: 12}, gelu, {linear: 12}, gelu, {linear: 12}, gelu, {linear: 5}]",
       "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 96}"}};
  return network;
}

}  // namespace

TEST_CASE("stages pass on the values between them once a micro-batch, and their gradients back") {
  // Narayanan et al. 2021, section 3.2: b*h values, and with v chunks on each rank v times as many.
  const Network equal{
      "equal",
      {"model.layers=[{linear: 16}, tanh, {linear: 16}, tanh, {linear: 16}, tanh, {linear: 16}, "
       "tanh, {linear: 5}]",
       "data.train={type: synthetic, shape: [16], classes: 5, samples: 96}"}};
  const size_t values = 6 * 4 * 16 * sizeof(float);  // of all micro-batches
  // The first rank sends what its stages make, and gradients to all stages but the last before its.
  for (const auto& [ranks, settings, times] : {std::tuple(2, over_stages(2), size_t{1}),
                                               {4, over_stages(4), 1},
                                               {2, interleaved(2, 2), 3}}) {
    const LayoutRun run = layout_run(equal, ranks, settings);
    CHECK(run.report.traffic.passed_on == times * values);
    // Except for alignment and the messages of the training loop.
    CHECK(std::abs(run.report.traffic.sent() - static_cast<double>(run.sent_within) / 5) < 1200);
  }
}

TEST_CASE("the plan of every rank is what the rank allocates") {
  const std::string narrow = "model.vocab_size=31";  // shards of unequal sizes
  for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
           {"parallelism={tensor: 2, pipeline: 2}", narrow},
           {"parallelism={tensor: 2, pipeline: 2, sequence_parallel: true, zero_stage: 1}"},
           {"parallelism={pipeline: 2, pipeline_schedule: interleaved, virtual_stages: 2}"},
           {"parallelism={context: 2, zero_stage: 3}", narrow},
           {"parallelism={context: 4, context_method: ring, zero_stage: 3}"},
           {"parallelism={zero_stage: 2}", narrow}}) {
    INFO(layout.front());
    std::vector<std::string> overrides = layout;
    overrides.emplace_back("training.micro_batch_size=2");
    std::array<size_t, 4> planned{}, allocated{};
    run_rank_threads(4, [&](ThreadCollectives& ranks) {
      Experiment experiment = layout_experiment(networks()[2], overrides);
      const Session session = open_session(experiment, layout_options(ranks));
      allocated.at(static_cast<size_t>(ranks.rank())) = session.executor->arena_bytes();
    });
    for (int rank = 0; rank < 4; ++rank) {
      Experiment experiment = layout_experiment(networks()[2], overrides);
      const SessionOptions options{
          .engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}};
      planned.at(static_cast<size_t>(rank)) =
          open_planned_rank(experiment, options, 4, rank).executor->arena_bytes();
    }
    CHECK(planned == allocated);
  }
}

TEST_CASE("ranks are planned as equal if what learns, formats and kept layers are equal too") {
  const Network blocks{
      "blocks",
      {"model.layers=[{linear: 16}, tanh, {linear: 16}, tanh, {linear: 16}, tanh, {linear: 16}, "
       "tanh, {linear: 5}]",
       "data.train={type: synthetic, shape: [16], classes: 5, samples: 96}"}};
  for (const auto& [setting, equal] :
       {std::pair("seed=0", true),
        {"precision.compute=bf16", true},
        {"training.freeze=['layers.2.*']", false},
        {"training.freeze=['layers.0.*']", false},  // no gradient of what it receives
        {"optimizer={type: adamw, learning_rate: 0.01, groups: [{match: 'layers.4.*', freeze: "
         "true}]}",
         false},
        {"optimizer={type: adamw, learning_rate: 0.01, min_8bit_size: 1, groups: [{match: "
         "'layers.4.*', moments: 8bit}]}",
         false},
        {"precision={compute: bf16, overrides: {layers.2: f32}}", false},
        {"precision={compute: bf16, fp8: {except: layers.2}}", false},
        {"memory={recompute: full, keep_layers: layers.3}", false}}) {
    INFO(setting);
    Experiment experiment = layout_experiment(
        blocks,
        over_stages(4, {setting, "parallelism.pipeline_stages=[layers.2, layers.4, layers.6]"}));
    const SessionOptions options{
        .engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}};
    const Session session = open_planned_rank(experiment, options, 4, 0);
    CHECK(session.executor->training().equal_rank(2, 4) == (equal ? 1 : 2));
    CHECK(session.executor->training().equal_rank(3, 4) == 3);
  }
}

TEST_CASE("plans of interleaved stages count all stages of a rank") {
  const Network wide{
      "wide",
      {"model.layers=[{linear: 16}, tanh, {linear: 16}, tanh, {linear: 16}, tanh, {linear: 16}, "
       "tanh, {linear: 16}, tanh, {linear: 16}, tanh, {linear: 16}, tanh, {linear: 16}, tanh, "
       "{linear: 4096}, tanh, {linear: 5}]",
       "data.train={type: synthetic, shape: [16], classes: 5, samples: 96}"}};
  Experiment experiment = layout_experiment(
      wide, interleaved(4, 2,
                        {"parallelism.pipeline_stages=[layers.2, layers.4, layers.6, layers.8, "
                         "layers.10, layers.12, layers.14]"}));
  const SessionOptions options{.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()},
                               .gpu = find_gpus("h100").front()};
  const Session session = open_planned_rank(experiment, options, 4, 0);
  CHECK(session.executor->training().equal_rank(2, 4) == 1);
  CHECK(session.executor->training().equal_rank(3, 4) == 3);
  size_t largest = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const Session other = open_planned_rank(experiment, options, 4, rank);
    largest = std::max(largest, other.executor->arena_bytes());
    CHECK(other.executor->report().kernel_calls >=
          other.executor->training_program().graph().nodes.size());
  }
  const MemoryLimit limit{
      .owner = "the GPU has", .of = MemoryLimit::Of::gpu, .has = uint64_t{1} << 40};
  CHECK(memory_fit(session, {limit}).needs == largest + kDescribedGpuReserve);
}

TEST_CASE("interleaved stages have the losses and weights of accumulation, to the bit") {
  const LayoutRun one = layout_run(deep(), 1, kMicro);
  for (const auto& [ranks, chunks] : {std::pair(2, 2), {2, 3}, {2, 4}, {3, 2}, {3, 3}, {4, 2}}) {
    INFO(ranks << " ranks, " << chunks << " chunks");
    const LayoutRun run = layout_run(deep(), ranks, interleaved(ranks, chunks));
    CHECK(run.losses == one.losses);
    CHECK(greatest_difference(run.norms, one.norms) < 1e-12);
    CHECK(run.state == one.state);
  }
}

TEST_CASE("interleaved stages work with groups of micro-batches of any size") {
  for (int micro_batch : {1, 3, 8, 24}) {
    const std::vector<std::string> micro{fmt::format("training.micro_batch_size={}", micro_batch)};
    const LayoutRun one = layout_run(deep(), 1, micro);
    for (const auto& [ranks, chunks] : {std::pair(2, 2), {3, 2}, {4, 2}}) {
      INFO(ranks << " ranks, " << chunks << " chunks, micro-batches of " << micro_batch);
      const LayoutRun run = layout_run(deep(), ranks, interleaved(ranks, chunks, micro));
      CHECK(run.losses == one.losses);
      CHECK(run.state == one.state);
    }
  }
}

TEST_CASE("interleaved stages work with tied weights, data parallelism, ZeRO and tensors") {
  const LayoutRun gpt = layout_run(networks()[2], 1, kMicro);
  const LayoutRun mlp = layout_run(deep(), 1, {});
  for (int zero : {0, 1, 2, 3}) {
    for (const auto& [ranks, tensor] : {std::pair(2, 1), {4, 1}, {4, 2}, {8, 2}}) {
      INFO("zero_stage " << zero << ", " << ranks << " ranks, tensor " << tensor);
      const std::vector<std::string> layout =
          interleaved(2, 3,
                      {fmt::format("parallelism.zero_stage={}", zero),
                       fmt::format("parallelism.tensor={}", tensor)});
      const LayoutRun text = layout_run(networks()[2], ranks, layout);
      CHECK(greatest_difference(text.losses, gpt.losses) < 1e-5);
      CHECK(greatest_difference(text.norms, gpt.norms) < 1e-5);
      CHECK(text.state.size() == gpt.state.size());
      const LayoutRun images = layout_run(deep(), ranks, layout);
      CHECK(greatest_difference(images.losses, mlp.losses) < 1e-5);
      CHECK(greatest_difference(images.norms, mlp.norms) < 1e-5);
    }
  }
  // Groups of ranks with one state, whose sums are added up between the groups.
  const LayoutRun hybrid = layout_run(
      deep(), 8,
      interleaved(
          2, 2,
          {"parallelism={zero_stage: 2, zero_shard_size: 2}", "training.micro_batch_size=3"}));
  CHECK(greatest_difference(hybrid.losses, mlp.losses) < 1e-5);
}

TEST_CASE("chunks of one rank may share a layer") {
  const Network shared{"shared",
                       {"model.layers=[flatten, {linear: 16, name: a}, gelu, {linear: 16, name: "
                        "b}, gelu, {linear: 16, "
                        "share: a}, gelu, {linear: 16, name: d}, gelu, {linear: 5}]",
                        "data.train={type: synthetic, shape: [4, 4, 1], classes: 5, samples: 96}"}};
  const LayoutRun one = layout_run(shared, 1, kMicro);
  for (const char* more : {"zero_stage: 0", "zero_stage: 2", "zero_stage: 3"}) {
    INFO(more);
    const LayoutRun run = layout_run(
        shared, 4,
        interleaved(2, 2,
                    {fmt::format("parallelism={{{}, pipeline_stages: [b, layers.5, d]}}", more)}));
    CHECK(greatest_difference(run.losses, one.losses) < 1e-5);
    CHECK(greatest_difference(run.norms, one.norms) < 1e-5);
  }
}

TEST_CASE("a pipeline has the losses and weights of accumulation, to the bit") {
  for (const Network& network : {networks()[0], networks()[1]}) {
    const LayoutRun one = layout_run(network, 1, kMicro);
    for (int stages : {2, 3}) {
      for (const char* schedule : {"1f1b", "gpipe", "zero_bubble"}) {
        INFO(network.name << ", " << stages << " stages, " << schedule);
        const LayoutRun run = layout_run(
            network, stages,
            over_stages(stages, {fmt::format("parallelism.pipeline_schedule={}", schedule)}));
        CHECK(run.losses == one.losses);
        CHECK(greatest_difference(run.norms, one.norms) < 1e-12);
        CHECK(run.state == one.state);
      }
    }
  }
}

TEST_CASE("gradients of weights can be computed later, in every layout") {
  const LayoutRun gpt = layout_run(networks()[2], 1, kMicro);
  const LayoutRun mlp = layout_run(deep(), 1, kMicro);
  const std::vector<std::string> zero_bubble{"parallelism.pipeline_schedule=zero_bubble"};
  for (int stages : {2, 3, 4}) {
    const LayoutRun run = layout_run(deep(), stages, over_stages(stages, zero_bubble));
    CHECK(run.losses == mlp.losses);
    CHECK(run.state == mlp.state);
  }
  for (const char* recompute : {"selective", "full"}) {
    const LayoutRun run = layout_run(
        deep(), 2, over_stages(2, {zero_bubble[0], fmt::format("memory.recompute={}", recompute)}));
    CHECK(run.state == mlp.state);
  }
  for (int zero : {0, 1, 2, 3}) {
    for (const auto& [ranks, tensor] : {std::pair(2, 1), {4, 1}, {4, 2}, {8, 2}}) {
      INFO("zero_stage " << zero << ", " << ranks << " ranks, tensor " << tensor);
      const LayoutRun run =
          layout_run(networks()[2], ranks,
                     over_stages(2, {zero_bubble[0], fmt::format("parallelism.zero_stage={}", zero),
                                     fmt::format("parallelism.tensor={}", tensor)}));
      CHECK(greatest_difference(run.losses, gpt.losses) < 1e-5);
      CHECK(greatest_difference(run.norms, gpt.norms) < 1e-5);
    }
  }
}

TEST_CASE("stages that share a parameter add their gradients and make the same step") {
  const Network& gpt = networks()[2];
  const LayoutRun one = layout_run(gpt, 1, kMicro);
  for (const auto& [ranks, stages] : {std::pair(2, 2), {4, 4}, {4, 2}}) {
    INFO(ranks << " ranks, " << stages << " stages");
    const LayoutRun run = layout_run(gpt, ranks, over_stages(stages));
    CHECK(greatest_difference(run.losses, one.losses) < 1e-5);
    CHECK(greatest_difference(run.norms, one.norms) < 1e-5);
    CHECK(run.state.size() == one.state.size());
  }
  for (int zero : {1, 2, 3}) {
    INFO("zero_stage " << zero);
    const LayoutRun run =
        layout_run(gpt, 4, over_stages(2, {fmt::format("parallelism.zero_stage={}", zero)}));
    CHECK(greatest_difference(run.losses, one.losses) < 1e-5);
    CHECK(greatest_difference(run.norms, one.norms) < 1e-5);
    CHECK(run.state.size() == one.state.size());
  }
}

TEST_CASE("recurrent networks and BERT have the losses of one rank in every layout") {
  const std::string tokens =
      "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}";
  const Network all[] = {
      {"lstm",
       {"model={vocab_size: 29, layers: [{embedding: {embedding_dim: 16}}, {lstm: 16}, {dropout: "
        "0.2}, {lstm: 16}, {lm_head: {}}]}",
        tokens}},
      {"gru",
       {"model={vocab_size: 29, layers: [{embedding: {embedding_dim: 16}}, {gru: 16}, {gru: 16}, "
        "{lm_head: {}}]}",
        tokens}},
      {"bert",
       {"model={type: bert, num_layers: 3, hidden_size: 24, num_heads: 6, max_positions: 8, "
        "vocab_size: 29, dropout: 0.1}",
        tokens}}};
  for (const Network& network : all) {
    const LayoutRun one = layout_run(network, 1, kMicro);
    const bool tied = network.name == std::string("bert");
    for (const auto& [ranks, layout] : std::vector<std::pair<int, std::vector<std::string>>>{
             {2, over_stages(2)},
             {3, over_stages(3, {"parallelism.pipeline_schedule=gpipe"})},
             {2, over_stages(2, {"parallelism.pipeline_schedule=zero_bubble"})},
             {2, interleaved(2, 2)},
             {4, over_stages(2, {"parallelism.zero_stage=1"})},
             {4, over_stages(2, {"parallelism.tensor=2"})}}) {
      INFO(network.name << ", " << ranks << " ranks, " << layout.back());
      const LayoutRun run = layout_run(network, ranks, layout);
      CHECK(greatest_difference(run.losses, one.losses) < 1e-5);
      CHECK(greatest_difference(run.norms, one.norms) < 1e-5);
      CHECK(run.state.size() == one.state.size());
      if (!tied && ranks < 4) CHECK(run.losses == one.losses);
    }
  }
}

TEST_CASE("a pipeline works with data parallelism, ZeRO and tensor parallelism") {
  const Network& mlp = networks()[0];
  const LayoutRun one = layout_run(mlp, 1, {});
  for (int zero : {0, 1, 2, 3}) {
    for (const auto& [ranks, tensor] : {std::pair(4, 1), {4, 2}, {8, 2}}) {
      INFO("zero_stage " << zero << ", " << ranks << " ranks, tensor " << tensor);
      std::vector<std::string> layout{fmt::format("parallelism.zero_stage={}", zero),
                                      fmt::format("parallelism.tensor={}", tensor)};
      const LayoutRun run = layout_run(mlp, ranks, over_stages(2, layout));
      CHECK(greatest_difference(run.losses, one.losses) < 1e-5);
      CHECK(greatest_difference(run.norms, one.norms) < 1e-5);
      CHECK(run.state.size() == one.state.size());
    }
  }
}

TEST_CASE("training techniques work in a pipeline") {
  for (const std::string& variation : std::vector<std::string>{
           "precision.compute=bf16", "training.freeze=[\"layers.6.bias\"]", "memory.recompute=full",
           "memory.recompute=selective", "training.ema={decay: 0.9}", "training.reduction=fixed",
           "optimizer={type: lamb, learning_rate: 0.01}", "parallelism.reduce_dtype=bf16",
           "precision={compute: bf16, parameters: bf16}",
           "training.clip_percentile={percentile: 50}", "data.train.shuffle=false"}) {
    INFO(variation);
    for (const auto& [network, layout] : {std::pair(networks()[0], over_stages(2, {variation})),
                                          {deep(), interleaved(2, 3, {variation})}}) {
      const LayoutRun one = layout_run(network, 1, {kMicro[0], variation});
      const LayoutRun run = layout_run(network, 2, layout);
      CHECK(run.losses == one.losses);
      CHECK(run.state == one.state);
    }
  }
}

TEST_CASE("automatic recomputation changes no bit of a pipeline") {
  const LayoutRun kept = layout_run(networks()[2], 2, over_stages(2, {}));
  const LayoutRun run = layout_run(networks()[2], 2, over_stages(2, {"memory.recompute=auto"}));
  CHECK(run.losses == kept.losses);
  CHECK(run.state == kept.state);
  CHECK(run.report.work_bytes < kept.report.work_bytes);
}

TEST_CASE("reduction: fixed gives the same bits over data and pipeline") {
  const std::vector<std::string> fixed{"training.reduction=fixed", "training.micro_batch_size=6"};
  const LayoutRun one = layout_run(networks()[0], 1, fixed);
  for (const auto& [ranks, stages] : {std::pair(2, 2), {4, 2}, {8, 2}, {3, 3}}) {
    INFO(ranks << " ranks, " << stages << " stages");
    const LayoutRun run = layout_run(networks()[0], ranks, over_stages(stages, fixed));
    CHECK(run.losses == one.losses);
    CHECK(run.state == one.state);
  }
  const LayoutRun whole = layout_run(deep(), 1, fixed);
  for (int ranks : {2, 4}) {
    const LayoutRun run = layout_run(deep(), ranks, interleaved(2, 2, fixed));
    CHECK(run.losses == whole.losses);
    CHECK(run.state == whole.state);
  }
}

TEST_CASE("stages may share a norm, whose gradients are copies, and may learn nothing") {
  const Network shared{
      "shared",
      {"model.layers=[{embedding: {embedding_dim: 16}}, {linear: 16, name: a}, {layer_norm: {}, "
       "name: n}, "
       "gelu, {linear: 16, name: c}, {layer_norm: {}, share: n}, {linear: 16}, lm_head]",
       "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}",
       "model.vocab_size=29"}};
  const LayoutRun one = layout_run(shared, 1, kMicro);
  for (const char* layer : {"c", "layers.7"}) {
    INFO(layer);
    const LayoutRun run = layout_run(
        shared, 2, over_stages(2, {fmt::format("parallelism.pipeline_stages=[{}]", layer)}));
    CHECK(greatest_difference(run.losses, one.losses) < 1e-6);
    CHECK(greatest_difference(run.norms, one.norms) < 1e-6);
  }
  // The last stage has only a copy of the embedding, or the first one nothing that learns.
  const LayoutRun gpt = layout_run(networks()[2], 1, kMicro);
  const LayoutRun head =
      layout_run(networks()[2], 2, over_stages(2, {"parallelism.pipeline_stages=[lm_head]"}));
  CHECK(greatest_difference(head.losses, gpt.losses) < 1e-5);
  const std::vector<std::string> frozen{kMicro[0], "training.freeze=[\"layers.1.*\"]"};
  const LayoutRun mlp = layout_run(networks()[0], 1, frozen);
  const LayoutRun run = layout_run(
      networks()[0], 2, over_stages(2, {frozen[1], "parallelism.pipeline_stages=[layers.2]"}));
  CHECK(run.losses == mlp.losses);
  CHECK(run.state == mlp.state);
}

TEST_CASE("stages may begin within a block") {
  // The additions of a residual block have the layer of the block, on both sides of the border.
  const Network llama{
      "llama",
      {"model={type: llama, num_layers: 2, hidden_size: 16, num_heads: 2, num_kv_heads: 1, "
       "intermediate_size: 24, max_positions: 8, vocab_size: 29}",
       "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}"}};
  for (const char* compute : {"f32", "bf16"}) {
    const std::string precision = fmt::format("precision.compute={}", compute);
    const LayoutRun one = layout_run(llama, 1, {kMicro[0], precision});
    for (const char* layer : {"mlp.down_proj", "self_attn.o_proj", "mlp.gate_proj"}) {
      INFO(layer << " in " << compute);
      const LayoutRun run = layout_run(
          llama, 2,
          over_stages(2, {precision,
                          fmt::format("parallelism.pipeline_stages=[model.layers.1.{}]", layer)}));
      CHECK(run.losses == one.losses);
      CHECK(run.state == one.state);
    }
  }
}

TEST_CASE("an evaluation in a pipeline is that of one rank") {
  const std::vector<std::string> eval{
      "data.eval={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 13, seed: 2}",
      "training={global_batch_size: 24, max_steps: 2, micro_batch_size: 4}",
      "evaluation.eval_steps=1", "model.final_bias_from_data=true"};
  const LayoutRun one = layout_run(networks()[0], 1, eval);
  for (const auto& [ranks, stages] : {std::pair(2, 2), {4, 2}, {3, 3}}) {
    std::vector<std::string> layout = eval;
    layout.push_back(fmt::format("parallelism.pipeline={}", stages));
    CHECK(layout_run(networks()[0], ranks, layout).evaluation ==
          Approx(one.evaluation).epsilon(1e-6));
  }
  const LayoutRun whole = layout_run(deep(), 1, eval);
  for (const auto& [ranks, chunks] : {std::pair(2, 3), {3, 2}}) {
    CHECK(layout_run(deep(), ranks, interleaved(ranks, chunks, eval)).evaluation ==
          Approx(whole.evaluation).epsilon(1e-6));
  }
}

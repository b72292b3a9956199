// Transformers over the context axis (passes/context_cut.h): every rank computes its tokens of each
// sample, with the losses of one rank.
#include <cstring>
#include <fstream>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/run_folder.h"
#include "compile/traffic.h"
#include "refusal.h"
#include "run/low_precision.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

const std::string kTokens =
    "data.train={type: synthetic_tokens, vocab_size: 29, length: 16, samples: 96}";

const std::vector<Network>& texts() {
  static const std::vector<Network> all{
      {"gpt2",
       {"model={type: gpt2, num_layers: 2, hidden_size: 16, num_heads: 4, max_positions: 20, "
        "vocab_size: 29, dropout: 0.1}",
        kTokens}},
      {"llama",
       {"model={type: llama, num_layers: 2, hidden_size: 16, num_heads: 4, num_kv_heads: 2, "
        "intermediate_size: 20, max_positions: 16, vocab_size: 29, attention_dropout: 0.1, "
        "sliding_window: 5, head_norm: {type: rms_norm, name: .}}",
        kTokens}},
      {"bert",
       {"model={type: bert, num_layers: 2, hidden_size: 16, num_heads: 4, max_positions: 16, "
        "vocab_size: 29, dropout: 0.1}",
        kTokens}},
      {"alibi",
       {"model={vocab_size: 29, layers: [{embedding: {embedding_dim: 16}}, sinusoidal_positions, "
        "{linear: 48, name: qkv}, {attention: {num_heads: 4, causal: true, alibi: true, dropout: "
        "0.2}}, {linear: 16}, {lm_head: {bias: true}}]}",
        kTokens}},
      // Batch norm has no rule for tokens.
      {"gathered",
       {"model={vocab_size: 29, layers: [{embedding: {embedding_dim: 16}}, batch_norm, "
        "{multi_head_attention: {num_heads: 4, causal: true}}, {dropout: 0.1}, {linear: 16}, "
        "{lm_head: {bias: true}}]}",
        kTokens}},
  };
  return all;
}

const std::string kTwentySteps =
    "training={global_batch_size: 12, max_steps: 20, max_grad_norm: 0.5}";

std::vector<std::string> over_context(int ranks, std::vector<std::string> more = {}) {
  more.push_back(fmt::format("parallelism.context={}", ranks));
  return more;
}

// Writes integer tensors as a file of safetensors: name, shape and elements of each.
struct IntegerTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<int32_t> values;
};
void write_integers(const std::filesystem::path& path, const std::vector<IntegerTensor>& tensors) {
  std::string header, data;
  for (const IntegerTensor& tensor : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.values.data()), 4 * tensor.values.size());
    header += fmt::format("{}\"{}\":{{\"dtype\":\"I32\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.empty() ? "{" : ",", tensor.name, fmt::join(tensor.shape, ","),
                          begin, data.size());
  }
  header += "}";
  uint64_t length = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << header << data;
}

// 96 texts of 16 tokens with 1 to 16 that count: ids, next ids, what is padding, and classes.
struct PaddedTexts {
  TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "texts.safetensors";

  PaddedTexts() {
    constexpr int kTexts = 96, kTokens = 16;
    std::vector<int32_t> ids, next, mask, lengths, classes;
    for (int n = 0; n < kTexts; ++n) {
      lengths.push_back(1 + n * 7 % kTokens);
      classes.push_back(n % 3);
      for (int t = 0; t < kTokens; ++t) {
        ids.push_back((n * 11 + t * t * 5 + classes.back()) % 29);
        mask.push_back(t < lengths.back() ? 1 : 0);
        next.push_back(mask.back() == 1 && t % 3 != 1 ? (n + t * 3) % 29 : -100);
      }
    }
    write_integers(path, {{"ids", {kTexts, kTokens}, ids},
                          {"next", {kTexts, kTokens}, next},
                          {"mask", {kTexts, kTokens}, mask},
                          {"lengths", {kTexts}, lengths},
                          {"classes", {kTexts}, classes}});
  }
  std::string data(const std::string& inputs, const std::string& targets) const {
    return fmt::format("{{type: tensors, path: '{}', inputs: {}, targets: {}}}", path.string(),
                       inputs, targets);
  }
};

void check_equal(const LayoutRun& parts, const LayoutRun& one) {
  CHECK(greatest_difference(parts.losses, one.losses) < 1e-5);
  CHECK(greatest_difference(parts.norms, one.norms) < 1e-5);
}

}  // namespace

TEST_CASE("transformers train over the context axis with the losses of one rank") {
  for (const Network& network : texts()) {
    const LayoutRun one = layout_run(network, 1, {kTwentySteps});
    for (const auto& [ranks, context] : {std::pair(2, 2), {4, 4}, {4, 2}}) {
      INFO(network.name << ", " << ranks << " ranks, context " << context);
      // Batch norm depends on the micro-batch.
      const bool statistics = network.name == std::string("gathered");
      if (statistics && ranks != context) continue;
      const LayoutRun parts = layout_run(network, ranks, over_context(context, {kTwentySteps}));
      check_equal(parts, one);
    }
  }
}

TEST_CASE("padding, ignored targets, evaluations and accuracy are those of one rank") {
  const PaddedTexts texts;
  const auto eval = [&](const std::string& data) {
    return std::vector<std::string>{"data.train=" + data, "data.eval=" + data,
                                    "evaluation={eval_steps: 5, samples: 21}",
                                    "evaluation.metrics=[accuracy, top_3]"};
  };
  const std::string bert =
      "num_layers: 2, hidden_size: 16, num_heads: 4, max_positions: 16, vocab_size: 29, dropout: "
      "0.1";
  std::vector<Network> networks;
  networks.push_back({"bert", eval(texts.data("{input: ids, attention_mask: mask}", "next"))});
  networks.back().overrides.push_back("model={type: bert, " + bert + "}");
  // The loss is that of whole texts.
  networks.push_back(
      {"classifier", eval(texts.data("{input: ids, attention_mask: mask}", "classes"))});
  networks.back().overrides.push_back("model={type: bert_classifier, num_classes: 3, " + bert +
                                      "}");
  networks.back().overrides[3] = "evaluation.metrics=[accuracy, f1]";
  networks.push_back(
      {"transformer",
       eval(texts.data("{source: ids, source_lengths: lengths, decoder_input: ids}", "next"))});
  networks.back().overrides.emplace_back(
      "model={type: transformer, num_layers: 1, hidden_size: 16, num_heads: 4, dropout: 0.1, "
      "vocab_size: 29}");
  for (const Network& network : networks) {
    const LayoutRun one = layout_run(network, 1, {kTwentySteps});
    for (const auto& [ranks, context] : {std::pair(2, 2), {4, 4}, {4, 2}}) {
      INFO(network.name << ", " << ranks << " ranks, context " << context);
      const LayoutRun parts = layout_run(network, ranks, over_context(context, {kTwentySteps}));
      check_equal(parts, one);
      CHECK(greatest_difference(parts.accuracies, one.accuracies) < 1e-12);
      CHECK(parts.evaluation == Approx(one.evaluation).epsilon(1e-5));
    }
  }
}

TEST_CASE("context works with the other axes, ZeRO, accumulation, recomputation and bf16") {
  const std::vector<std::vector<std::string>> variations{
      {"precision.compute=bf16"},
      {"parallelism.zero_stage=1"},
      {"parallelism.zero_stage=2", "training.micro_batch_size=3"},
      {"parallelism.zero_stage=3", "memory.recompute=full"},
      {"memory.recompute=selective", "training.micro_batch_size=4"},
      {"parallelism.reduce_dtype=bf16"},
      {"parallelism.tensor=2"},
      {"parallelism.tensor=2", "parallelism.zero_stage=3"},
      {"parallelism.pipeline=2", "training.micro_batch_size=4"},
      {"parallelism.pipeline=2", "parallelism.zero_stage=1", "training.micro_batch_size=4"},
      {"parallelism.pipeline=2", "parallelism.tensor=2", "training.micro_batch_size=6"}};
  for (const Network& network : texts()) {
    if (network.name == std::string("gathered")) continue;  // depends on the micro-batch
    for (const std::vector<std::string>& variation : variations) {
      INFO(network.name << ", " << variation.front() << " " << variation.back());
      std::vector<std::string> alone = variation;
      std::erase_if(alone, [](const std::string& text) { return text.starts_with("parallelism"); });
      const LayoutRun one = layout_run(network, 1, alone);
      int model = 1;
      for (const std::string& text : variation) {
        model *= text == "parallelism.tensor=2" || text == "parallelism.pipeline=2" ? 2 : 1;
      }
      const int ranks = model == 4 ? 8 : 4;
      const LayoutRun parts = layout_run(network, ranks, over_context(2, variation));
      const bool bf16 = variation.front().ends_with("bf16");
      check_close(parts, one,
                  bf16 ? low_precision(network, alone, kBitsOfBf16, ranks) : kToleranceOfF32);
    }
  }
}

TEST_CASE("groups that share state over context and data give the losses of whole state") {
  const LayoutRun one = layout_run(texts()[0], 1, {});
  for (int stage : {1, 2, 3}) {
    check_equal(layout_run(texts()[0], 8,
                           over_context(2, {fmt::format("parallelism.zero_stage={}", stage),
                                            "parallelism.zero_shard_size=2",
                                            "training.micro_batch_size=3"})),
                one);
  }
}

TEST_CASE("experts are chosen by each rank for its tokens, and their losses are those of all") {
  const Network network{
      "mixtral",
      {"model={type: mixtral, num_layers: 2, hidden_size: 16, num_heads: 4, num_kv_heads: 2, "
       "intermediate_size: 12, num_experts: 4, max_positions: 16, vocab_size: 29, balance_loss: "
       "0.02}",
       kTokens}};
  const std::vector<std::string> micro_batch{"training.micro_batch_size=12"};
  const LayoutRun one = layout_run(network, 1, micro_batch);
  check_equal(layout_run(network, 4, over_context(2, micro_batch)), one);
}

TEST_CASE("experts of what all ranks have are divided too, and drop as many rows") {
  const PaddedTexts texts;
  const Network network{
      "classifier",
      {"model={vocab_size: 29, layers: [{embedding: {embedding_dim: 16}}, {multi_head_attention: "
       "{num_heads: 2}}, {slice: {axis: 1, start: 0, stop: 1}}, flatten, {residual: [{moe: "
       "{num_experts: 4, experts_per_token: 2, intermediate_size: 8, balance_loss: 0.1}}]}, "
       "{linear: 3}]}",
       "data.train=" + texts.data("{input: ids}", "classes")}};
  const std::vector<std::string> limited{"training.micro_batch_size=12",
                                         "parallelism.expert_capacity=0.9"};
  const LayoutRun one = layout_run(network, 1, limited);
  for (const char* experts : {"parallelism.expert=1", "parallelism.expert=2"}) {
    std::vector<std::string> shared = limited;
    shared.emplace_back(experts);
    check_equal(layout_run(network, 4, over_context(2, shared)), one);
  }
}

TEST_CASE("ring attention has the losses of one rank") {
  const std::string tokens =
      "data.train={type: synthetic_tokens, vocab_size: 29, length: 24, samples: 96}";
  const std::vector<Network> rings{
      {"gpt2",
       {"model={type: gpt2, num_layers: 2, hidden_size: 16, num_heads: 4, max_positions: 24, "
        "vocab_size: 29, dropout: 0.1, attention_dropout: 0}",
        tokens}},
      {"llama",
       {"model={type: llama, num_layers: 2, hidden_size: 16, num_heads: 4, num_kv_heads: 2, "
        "intermediate_size: 20, max_positions: 24, vocab_size: 29}",
        tokens}},
      {"bert",
       {"model={type: bert, num_layers: 2, hidden_size: 16, num_heads: 4, max_positions: 24, "
        "vocab_size: 29, dropout: 0.1, attention_dropout: 0}",
        tokens}},
      // One packed product, of which attention reads all parts.
      {"packed",
       {"model={vocab_size: 29, layers: [{embedding: {embedding_dim: 16}}, {multi_head_attention: "
        "{num_heads: 4, num_kv_heads: 2, causal: true}}, {lm_head: {bias: true}}]}",
        tokens}}};
  const std::vector<std::vector<std::string>> variations{
      {"precision.compute=bf16"},
      {"parallelism.zero_stage=3", "memory.recompute=full"},
      {"memory.recompute=selective", "training.micro_batch_size=4"},
      {"parallelism.tensor=2"},
      {"parallelism.pipeline=2", "training.micro_batch_size=4"},
      {"parallelism.pipeline=2", "parallelism.pipeline_schedule=zero_bubble",
       "training.micro_batch_size=4"}};
  for (const Network& network : rings) {
    const LayoutRun one = layout_run(network, 1, {kTwentySteps});
    for (int context : {2, 3, 4}) {
      INFO(network.name << ", context " << context);
      check_equal(
          layout_run(network, context,
                     over_context(context, {kTwentySteps, "parallelism.context_method=ring"})),
          one);
    }
    for (std::vector<std::string> variation : variations) {
      INFO(network.name << ", " << variation.front() << " " << variation.back());
      const bool stages = variation.front() == "parallelism.pipeline=2";
      if (stages && network.name == std::string("packed")) continue;
      std::vector<std::string> alone = variation;
      std::erase_if(alone, [](const std::string& text) { return text.starts_with("parallelism"); });
      variation.emplace_back("parallelism.context_method=ring");
      const bool bf16 = variation.front().ends_with("bf16");
      check_close(layout_run(network, 4, over_context(2, variation)), layout_run(network, 1, alone),
                  bf16 ? low_precision(network, alone, kBitsOfBf16, 2) : kToleranceOfF32);
    }
  }
}

TEST_CASE("ring attention has windows, ALiBi, masks and dropout of weights at their positions") {
  const std::string ring = "parallelism.context_method=ring";
  const std::string tokens =
      "data.train={type: synthetic_tokens, vocab_size: 29, length: 24, samples: 96}";
  const PaddedTexts padded;
  std::vector<Network> networks;
  const auto add = [&](const char* name, const std::string& attention, int width = 48) {
    networks.push_back({name,
                        {fmt::format("model={{vocab_size: 29, layers: [{{embedding: "
                                     "{{embedding_dim: 16}}}}, sinusoidal_positions, {{linear: "
                                     "{}}}, {{attention: {{num_heads: 4, {}}}}}, {{linear: 16}}, "
                                     "{{lm_head: {{bias: true}}}}]}}",
                                     width, attention),
                         tokens}});
  };
  // Windows that end within the next block, and two blocks away; of earlier tokens, and of both.
  add("window 3", "causal: true, sliding_window: 3");
  add("window 7", "num_kv_heads: 2, causal: true, sliding_window: 7, dropout: 0.1", 32);
  add("both sides", "sliding_window: 5");
  add("far", "sliding_window: 14, alibi: true");
  add("alibi", "causal: true, alibi: true, dropout: 0.2");
  networks.push_back(texts()[0]);
  networks.push_back(texts()[1]);
  for (const Network& network : networks) {
    const LayoutRun one = layout_run(network, 1, {kTwentySteps});
    const bool of_24 = network.overrides[1] == tokens;
    for (const auto& [ranks, context] : {std::pair(2, 2), {3, 3}, {4, 4}, {4, 2}}) {
      if (context == 3 && !of_24) continue;
      INFO(network.name << ", " << ranks << " ranks, context " << context);
      check_equal(layout_run(network, ranks, over_context(context, {kTwentySteps, ring})), one);
    }
  }
  // Texts of which some ranks have only padding: masks of tokens, and lengths of a source.
  const std::string data = padded.data("{input: ids, attention_mask: mask}", "next");
  networks = {
      {"bert",
       {"model={type: bert, num_layers: 2, hidden_size: 16, num_heads: 4, max_positions: 16, "
        "vocab_size: 29, dropout: 0.1}",
        "data.train=" + data, "data.eval=" + data, "evaluation={eval_steps: 5, samples: 21}"}},
      {"transformer",
       {"model={type: transformer, num_layers: 1, hidden_size: 16, num_heads: 4, dropout: 0.1, "
        "vocab_size: 29}",
        "data.train=" +
            padded.data("{source: ids, source_lengths: lengths, decoder_input: ids}", "next")}}};
  for (const Network& network : networks) {
    const LayoutRun one = layout_run(network, 1, {kTwentySteps});
    for (const auto& [ranks, context] : {std::pair(2, 2), {4, 4}, {4, 2}}) {
      INFO(network.name << ", " << ranks << " ranks, context " << context);
      const LayoutRun parts =
          layout_run(network, ranks, over_context(context, {kTwentySteps, ring}));
      check_equal(parts, one);
      CHECK(parts.evaluation == Approx(one.evaluation).epsilon(1e-5));
    }
  }
  for (const Network& network : {texts()[1], texts()[3], networks[0]}) {
    for (const std::vector<std::string>& variation : std::vector<std::vector<std::string>>{
             {"precision.compute=bf16"},
             {"memory.recompute=full", "parallelism.zero_stage=2"},
             {"memory.recompute=selective", "training.micro_batch_size=4"},
             {"parallelism.tensor=2", "parallelism.sequence_parallel=true"}}) {
      INFO(network.name << ", " << variation.front());
      std::vector<std::string> alone = variation;
      std::erase_if(alone, [](const std::string& text) { return text.starts_with("parallelism"); });
      const bool bf16 = variation.front().ends_with("bf16");
      std::vector<std::string> shared = over_context(2, variation);
      shared.push_back(ring);
      check_close(layout_run(network, 4, shared), layout_run(network, 1, alone),
                  bf16 ? low_precision(network, alone, kBitsOfBf16, 2) : kToleranceOfF32);
    }
  }
}

TEST_CASE("documents that share a sample stay apart on several ranks") {
  const TemporaryFolder folder;
  {
    std::ofstream file(folder / "tokens.bin", std::ios::binary);
    uint32_t random = 1;
    for (int i = 0; i < 96 * 24 + 1; ++i) {
      random = random * 1664525 + 1013904223;
      // Documents of 1 to 60 tokens: some end in the tokens of a rank, some are longer.
      const uint16_t token =
          random >> 16 & (i / 500 % 2 == 0 ? 7 : 31) ? 1 + (random >> 24) % 28 : 0;
      file.write(reinterpret_cast<const char*>(&token), sizeof token);
    }
  }
  const std::string data = fmt::format(
      "data.train={{type: tokens, path: {}, sequence_length: 24, vocab_size: 29, document_mask: "
      "true, end_token_id: 0}}",
      (folder / "tokens.bin").string());
  const std::vector<Network> networks{
      {"gpt2",
       {"model={type: gpt2, num_layers: 2, hidden_size: 16, num_heads: 4, max_positions: 24, "
        "vocab_size: 29, dropout: 0.1}",
        data}},
      {"llama",
       {"model={type: llama, num_layers: 2, hidden_size: 16, num_heads: 4, num_kv_heads: 2, "
        "intermediate_size: 20, max_positions: 24, vocab_size: 29, sliding_window: 7}",
        data}}};
  const std::vector<std::vector<std::string>> variations{
      {"precision.compute=bf16"},
      {"parallelism.zero_stage=3", "memory.recompute=full"},
      {"parallelism.tensor=2", "parallelism.sequence_parallel=true"},
      {"parallelism.pipeline=2", "training.micro_batch_size=4"}};
  for (const Network& network : networks) {
    const LayoutRun one = layout_run(network, 1, {kTwentySteps});
    std::vector<std::string> joined = network.overrides;
    joined.back().replace(joined.back().find(", document_mask"), std::string::npos, "}");
    CHECK(greatest_difference(layout_run({"joined", joined}, 1, {kTwentySteps}).losses,
                              one.losses) > 1e-3);
    for (const char* method : {"all_gather", "ring"}) {
      const std::string key = fmt::format("parallelism.context_method={}", method);
      for (const auto& [ranks, context] : {std::pair(2, 2), {3, 3}, {4, 4}, {4, 2}}) {
        INFO(network.name << ", " << method << ", " << ranks << " ranks, context " << context);
        check_equal(layout_run(network, ranks, over_context(context, {kTwentySteps, key})), one);
      }
      for (std::vector<std::string> variation : variations) {
        INFO(network.name << ", " << method << ", " << variation.front());
        std::vector<std::string> alone = variation;
        std::erase_if(alone,
                      [](const std::string& text) { return text.starts_with("parallelism"); });
        const bool bf16 = variation.front().ends_with("bf16");
        variation.push_back(key);
        check_close(layout_run(network, 4, over_context(2, variation)),
                    layout_run(network, 1, alone),
                    bf16 ? low_precision(network, alone, kBitsOfBf16, 2) : kToleranceOfF32);
      }
    }
  }
}

TEST_CASE("blocks of a ring beyond a window are not computed") {
  const auto attentions = [](int rank, int window) {
    int out = 0;
    run_rank_threads(4, [&](ThreadCollectives& ranks) {
      const Network network{
          "ring",
          {fmt::format("model={{vocab_size: 29, layers: [{{embedding: {{embedding_dim: 16}}}}, "
                       "{{linear: 48}}, {{attention: {{num_heads: 4, causal: true, sliding_window: "
                       "{}}}}}, {{linear: 16}}, "
                       "{{lm_head: {{bias: true}}}}]}}",
                       window),
           kTokens, "parallelism.context_method=ring"}};
      Experiment experiment = layout_experiment(network, over_context(4));
      const Session session = open_session(experiment, layout_options(ranks));
      if (ranks.rank() != rank) return;
      for (const Node& node : session.executor->training().graph.nodes) {
        out += node.op->name == "attention" ? 1 : 0;
      }
    });
    return out;
  };
  // The text has 8 chunks of 2 tokens, and rank 1 has the second and the seventh of them. Each
  // attends to itself and to the chunks before it: 2 and 7 chunks.
  CHECK(attentions(1, 16) == 2 + 7);
  CHECK(attentions(1, 2) == 2 + 2);  // the neighbours' last tokens
  CHECK(attentions(1, 1) == 1 + 1);
}

TEST_CASE("messages of a layer are as many as the formulas say") {
  struct Counts {
    std::map<Phase, int> messages;  // that this rank begins, but for those that it receives
    Traffic traffic;
  };
  const auto counted = [](const Network& network, int layers, const std::string& method) {
    Counts out;
    run_rank_threads(4, [&](ThreadCollectives& ranks) {
      Experiment experiment = layout_experiment(
          network, over_context(4, {fmt::format("model.num_layers={}", layers), method,
                                    "training={global_batch_size: 12, max_steps: 1, "
                                    "micro_batch_size: 3}"}));
      const Session session = open_session(experiment, layout_options(ranks));
      if (ranks.rank() != 0) return;
      const Graph& graph = session.executor->training().graph;
      for (const Node& node : graph.nodes) {
        const bool begins = node.op->slot == SlotUse::begins && !node.once_per_step &&
                            node.op->message != MessageKind::receive;
        if (begins) ++out.messages[node.phase];
      }
      out.traffic = step_traffic(graph, session.batch.micro_steps, session.executor->topology());
    });
    return out;
  };
  // The widths of keys and values of all heads, and whether their projections are packed.
  for (const auto& [network, width, packed] :
       {std::tuple(texts()[0], 16, true), {texts()[1], 8, false}}) {
    INFO(network.name);
    const std::string method = "parallelism.context_method=all_gather";
    Counts two = counted(network, 2, method), five = counted(network, 5, method);
    const int each = packed ? 1 : 2;
    CHECK(five.messages[Phase::forward] - two.messages[Phase::forward] == 3 * each);
    CHECK(five.messages[Phase::backward] - two.messages[Phase::backward] == 3 * 2 * each);
    // Keys and values of 12 samples of 16 tokens.
    const size_t bytes = sizeof(float) * 2 * 12 * 16 * static_cast<size_t>(width);
    CHECK(five.traffic.gathered - two.traffic.gathered == 3 * 2 * bytes);
    CHECK(five.traffic.scattered - two.traffic.scattered == 3 * bytes);
  }
  const Network ring{"llama",
                     {"model={type: llama, num_layers: 2, hidden_size: 16, num_heads: 4, "
                      "num_kv_heads: 2, intermediate_size: 20, max_positions: 16, vocab_size: 29}",
                      kTokens}};
  const std::string method = "parallelism.context_method=ring";
  Counts two = counted(ring, 2, method), five = counted(ring, 5, method);
  CHECK(five.messages[Phase::forward] - two.messages[Phase::forward] == 3 * 2 * 3);
  CHECK(five.messages[Phase::backward] - two.messages[Phase::backward] == 3 * 2 * 7);
  // Blocks of 4 tokens.
  CHECK(five.traffic.passed_on - two.traffic.passed_on ==
        3 * 2 * (3 + 7) * sizeof(float) * 12 * 4 * 8);
}

TEST_CASE("four ranks have a quarter of the activations of one") {
  for (const auto& [recompute, method] :
       {std::pair("none", "all_gather"), {"none", "ring"}, {"full", "all_gather"}}) {
    Network network{
        "llama",
        {"model={type: llama, num_layers: 8, hidden_size: 64, num_heads: 4, num_kv_heads: 2, "
         "intermediate_size: 160, max_positions: 512, vocab_size: 61}",
         "data.train={type: synthetic_tokens, vocab_size: 61, length: 512, samples: 8}",
         "training={global_batch_size: 1, max_steps: 1}",
         fmt::format("memory.recompute={}", recompute),
         fmt::format("parallelism.context_method={}", method)}};
    const auto bytes = [&](int ranks) {
      size_t out = 0;
      run_rank_threads(ranks, [&](ThreadCollectives& collectives) {
        Experiment experiment = layout_experiment(network, over_context(ranks));
        const Session session = open_session(experiment, layout_options(collectives));
        if (collectives.rank() == 0) out = session.executor->report().work_bytes;
      });
      return static_cast<double>(out);
    };
    INFO("recompute " << recompute << ", " << method);
    CHECK(bytes(4) < (recompute == std::string("none") ? 0.27 : 0.5) * bytes(1));
  }
}

TEST_CASE("checkpoints of parts of texts are those of any layout") {
  using State = std::map<std::string, std::vector<std::byte>>;
  std::mutex mutex;
  const auto add_state = [&](const Session& session, const ThreadCollectives& ranks, State& to) {
    StateSnapshot snapshot;
    take_snapshot(*session.executor, snapshot, false, ranks.rank(), ranks.size());
    const std::lock_guard lock(mutex);
    for (const TensorCopy& copy : snapshot) {
      if (copy.owner == ranks.rank()) to[copy.state] = copy.bytes;
    }
  };
  struct Layout {
    int context, tensor, pipeline, stage, ranks;
  };
  const auto experiment_of = [&](const Layout& layout, int seed) {
    return layout_experiment(
        texts()[0],
        over_context(layout.context, {fmt::format("parallelism.tensor={}", layout.tensor),
                                      fmt::format("parallelism.pipeline={}", layout.pipeline),
                                      fmt::format("parallelism.zero_stage={}", layout.stage),
                                      fmt::format("seed={}", seed)}));
  };
  const std::vector<Layout> layouts{{2, 1, 1, 0, 2}, {1, 1, 1, 0, 1}, {1, 2, 1, 0, 2},
                                    {2, 2, 1, 2, 4}, {4, 1, 1, 3, 4}, {2, 1, 2, 1, 8}};
  for (const Layout& from : layouts) {
    State saved;
    const TemporaryFolder folder;
    run_rank_threads(from.ranks, [&](ThreadCollectives& ranks) {
      Experiment experiment = experiment_of(from, 0);
      Session session = open_session(experiment, layout_options(ranks));
      start_session(session);
      train(session, {}, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
      CheckpointWriter writer(folder.path(), {}, "name: x\n", true,
                              session.shares_state() ? &ranks : nullptr);
      if (ranks.rank() == 0 || session.shares_state()) {
        writer.save(*session.executor,
                    {.step = 2, .updates = 2, .seed = 0, .global_batch = 24, .train_samples = 96});
        writer.finish();
      }
      add_state(session, ranks, saved);
    });
    const auto checkpoint = folder.path() / "step-000002";
    for (const Layout& to : layouts) {
      INFO("context " << from.context << ", tensor " << from.tensor << ", stage " << from.stage
                      << " to context " << to.context << ", tensor " << to.tensor << ", stage "
                      << to.stage);
      State found;
      run_rank_threads(to.ranks, [&](ThreadCollectives& ranks) {
        Experiment experiment = experiment_of(to, 5);
        Session session = open_session(experiment, layout_options(ranks));
        start_session(session);
        load_checkpoint(*session.executor, checkpoint, read_checkpoint_state(checkpoint));
        add_state(session, ranks, found);
      });
      CHECK(found == saved);
    }
  }
}

TEST_CASE("what context parallelism cannot divide is refused at its key") {
  const auto refused = [](const Network& network, int context, int ranks) {
    return refusal_of(
        [&] {
          run_rank_threads(ranks, [&](ThreadCollectives& collectives) {
            Experiment experiment = layout_experiment(network, over_context(context));
            open_session(experiment, layout_options(collectives));
          });
        },
        ExitCode::usage);
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(refused(texts()[0], 3, 3),
             Contains("-s parallelism.context=3") &&
                 Contains("16 tokens of input.input cannot be divided into 6 equal chunks, two for "
                          "each rank as attention is causal; 12 or 18 would fit"));
  CHECK_THAT(refused(texts()[2], 3, 3),
             Contains("16 tokens of input.input cannot be divided into 3 equal chunks; 15 or 18"));
  CHECK_THAT(refused(networks()[0], 2, 2), Contains("the model has no attention between tokens"));
  const Network lstm{"lstm",
                     {"model={vocab_size: 29, layers: [{embedding: {embedding_dim: 16}}, {lstm: "
                      "{hidden_size: 16}}, {lm_head: {bias: true}}]}",
                      kTokens}};
  CHECK_THAT(refused(lstm, 2, 2), Contains("recurrent layers read the tokens of a text one after"));
  Network fixed = texts()[0];
  fixed.overrides.emplace_back("training={global_batch_size: 12, max_steps: 1, reduction: fixed}");
  CHECK_THAT(refused(fixed, 2, 2), Contains("sums over tokens are not added in the order of"));
  CHECK_THAT(refused(texts()[0], 2, 3),
             Contains("3 ranks cannot be divided into groups of 2 for context parallelism"));
}

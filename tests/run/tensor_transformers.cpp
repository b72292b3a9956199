// Transformers over the tensor axis (passes/partition.h): attention by heads, with the losses of
// one rank and as few messages as Megatron-LM.
#include <functional>

#include "refusal.h"
#include "run/low_precision.h"
#include "run/memory_fit.h"

using namespace dltrain;

namespace {

const std::string kTokens =
    "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}";

const std::vector<Network>& transformers() {
  static const std::vector<Network> all{
      {"gpt2",
       {"model={type: gpt2, num_layers: 2, hidden_size: 24, num_heads: 6, max_positions: 8, "
        "vocab_size: 29, dropout: 0.1}",
        kTokens}},
      // Two ranks have 2 and 1 of 3 heads of keys and values.
      {"llama",
       {"model={type: llama, num_layers: 2, hidden_size: 24, num_heads: 6, num_kv_heads: 3, "
        "intermediate_size: 20, max_positions: 8, vocab_size: 29, attention_dropout: 0.1, "
        "head_norm: {type: rms_norm, name: .}}",
        kTokens}},
      // Every rank has a copy of the one head of keys and values.
      {"one head of keys",
       {"model={type: llama, num_layers: 2, hidden_size: 24, num_heads: 6, num_kv_heads: 1, "
        "intermediate_size: 20, max_positions: 8, vocab_size: 29, attention_bias: true, "
        "attention_dropout: 0.1, head_norm: {type: rms_norm, name: .}}",
        kTokens}},
      {"bert",
       {"model={type: bert, num_layers: 2, hidden_size: 24, num_heads: 6, max_positions: 8, "
        "vocab_size: 29, dropout: 0.1}",
        kTokens}},
      // All layers have the same weights.
      {"albert",
       {"model={type: albert, num_layers: 2, hidden_size: 24, embedding_size: 12, num_heads: 6, "
        "max_positions: 8, vocab_size: 29, dropout: 0.1}",
        kTokens}},
      {"vit",
       {"model={type: vit_b_16, num_layers: 2, hidden_size: 24, num_heads: 6, patch_size: 2, "
        "intermediate_size: 20, dropout: 0.1}",
        "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 96}"}},
      // Packed products that slices divide: queries, keys and values; gate and up.
      {"slices",
       {"model={vocab_size: 29, layers: [{embedding: {embedding_dim: 24}}, {linear: 48, name: "
        "qkv}, "
        "{slice: {start: 0, stop: 24}, name: q}, {slice: {start: 24, stop: 36}, name: k, inputs: "
        "qkv}, {slice: {start: 36}, name: v, inputs: qkv}, {attention: {num_heads: 6, "
        "num_kv_heads: 3, causal: true, dropout: 0.2}, inputs: [q, k, v]}, {linear: 24}, {linear: "
        "30, name: packed}, {slice: {stop: 15}}, {silu: {}, name: gate}, {slice: {start: 15}, "
        "name: up, inputs: packed}, {multiply: [gate, up]}, {linear: 24}, {lm_head: {}}]}",
        kTokens}},
      {"alibi",
       {"model={vocab_size: 29, layers: [{embedding: {embedding_dim: 24}}, {linear: 72, name: "
        "qkv}, {attention: "
        "{num_heads: 6, causal: true, alibi: true, dropout: 0.2}}, {linear: 24}, {lm_head: {bias: "
        "true}}]}",
        kTokens}},
  };
  return all;
}

const std::string kTwentySteps =
    "training={global_batch_size: 24, max_steps: 20, max_grad_norm: 0.5}";

std::vector<std::string> over_tensor_ranks(int ranks, std::vector<std::string> more = {}) {
  more.push_back(fmt::format("parallelism.tensor={}", ranks));
  return more;
}

}  // namespace

TEST_CASE("transformers train over the tensor axis with the losses of one rank") {
  for (const Network& network : transformers()) {
    const LayoutRun one = layout_run(network, 1, {kTwentySteps});
    for (const auto& [ranks, tensor] : {std::pair(2, 2), {4, 2}, {3, 3}}) {
      INFO(network.name << ", " << ranks << " ranks, tensor " << tensor);
      const LayoutRun shards =
          layout_run(network, ranks, over_tensor_ranks(tensor, {kTwentySteps}));
      CHECK(greatest_difference(shards.losses, one.losses) < 1e-5);
      CHECK(greatest_difference(shards.norms, one.norms) < 1e-5);
    }
  }
}

TEST_CASE("bf16, ZeRO, accumulation and recompute work with attention by heads") {
  const std::vector<std::vector<std::string>> variations{
      {"precision.compute=bf16"},
      {"parallelism.zero_stage=1"},
      {"parallelism.zero_stage=2", "training.micro_batch_size=3"},
      {"parallelism.zero_stage=3", "memory.recompute=full"},
      {"memory.recompute=full", "precision.compute=bf16"},
      {"memory.recompute=selective", "training.micro_batch_size=4"}};
  for (const Network& network : transformers()) {
    for (const std::vector<std::string>& variation : variations) {
      INFO(network.name << ", " << variation.front());
      std::vector<std::string> alone = variation;
      std::erase_if(alone, [](const std::string& text) { return text.starts_with("parallelism"); });
      const LayoutRun one = layout_run(network, 1, alone);
      const LayoutRun shards = layout_run(network, 4, over_tensor_ranks(2, variation));
      const bool bf16 = variation.front().ends_with("bf16") || variation.back().ends_with("bf16");
      check_close(shards, one,
                  bf16 ? low_precision(network, alone, kBitsOfBf16, 2) : kToleranceOfF32);
    }
  }
}

TEST_CASE("a block has two messages in the forward and two in the backward") {
  for (const Network& network : transformers()) {
    const auto messages = [&](int layers) {
      std::map<Phase, int> counts;
      run_rank_threads(2, [&](ThreadCollectives& ranks) {
        Experiment experiment = layout_experiment(
            network, over_tensor_ranks(2, {fmt::format("model.num_layers={}", layers)}));
        const Session session = open_session(experiment, layout_options(ranks));
        if (ranks.rank() != 0) return;
        for (const Node& node : session.executor->training().graph.nodes) {
          if (node.op->name.ends_with("_begin")) ++counts[node.phase];
        }
      });
      return counts;
    };
    INFO(network.name);
    if (network.name == std::string("alibi") || network.name == std::string("slices")) continue;
    auto two = messages(2), five = messages(5);
    // All ranks have the weights of one head of keys and values: two further sums in the backward.
    // The gradients of norms of heads, and of biases, are one message of all blocks.
    const bool copies = network.name == std::string("one head of keys");
    CHECK(five[Phase::forward] - two[Phase::forward] == 3 * 2);
    CHECK(five[Phase::backward] - two[Phase::backward] == 3 * (copies ? 4 : 2));
  }
}

TEST_CASE("of ranks with shards of different sizes the first allocates most, as planned") {
  // `dltrain plan` prints the first and the last.
  const Network eight{"8 heads",
                      {"model={type: llama, num_layers: 2, hidden_size: 32, num_heads: 8, "
                       "num_kv_heads: 8, intermediate_size: 20, max_positions: 8, vocab_size: 29}",
                       kTokens}};
  for (const auto& [network, ranks] :
       {std::pair(eight, 3), {transformers()[0], 2}, {transformers()[1], 2}}) {
    INFO(network.name << ", " << ranks << " ranks");
    const std::vector<std::string> overrides = over_tensor_ranks(ranks);
    std::vector<size_t> allocated(static_cast<size_t>(ranks)), planned;
    run_rank_threads(ranks, [&](ThreadCollectives& collectives) {
      Experiment experiment = layout_experiment(network, overrides);
      const Session session = open_session(experiment, layout_options(collectives));
      allocated[static_cast<size_t>(collectives.rank())] = session.executor->arena_bytes();
    });
    for (int rank = 0; rank < ranks; ++rank) {
      Experiment experiment = layout_experiment(network, overrides);
      const SessionOptions options{
          .engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}};
      planned.push_back(
          open_planned_rank(experiment, options, ranks, rank).executor->arena_bytes());
    }
    CHECK(planned == allocated);
    CHECK(std::ranges::is_sorted(planned, std::greater{}));
    if (ranks == 3) CHECK(planned.front() > planned.back());  // alignment hides one class
  }
}

TEST_CASE("logits stay sharded by vocabulary, and a tied table is stored once") {
  for (const Network& network : {transformers()[0], transformers()[2]}) {
    INFO(network.name);
    std::vector<size_t> stored;
    run_rank_threads(2, [&](ThreadCollectives& ranks) {
      Experiment experiment = layout_experiment(network, over_tensor_ranks(2));
      const Session session = open_session(experiment, layout_options(ranks));
      if (ranks.rank() != 0) return;
      for (const GraphValue& value : session.executor->training().graph.values) {
        const Shape& shape = value.spec.shape;
        // A rank has 15 of the 29 classes.
        CHECK_FALSE((shape.rank() == 3 && (shape[2] == 29 || shape[2] == 30)));
        const bool table = value.role == Role::parameter && value.shard &&
                           value.shard->whole.shape == Shape{29, 24};
        if (table) stored.push_back(value.spec.bytes());
      }
    });
    CHECK(stored == std::vector<size_t>{sizeof(float) * 15 * 24});
  }
}

TEST_CASE("smoothing, ignored targets and accuracy on sharded logits are those of one rank") {
  Network network = transformers()[0];
  network.overrides.insert(
      network.overrides.end(),
      {"loss={type: cross_entropy, label_smoothing: 0.1, z_loss: 0.01, ignore_index: 3}",
       "data.eval={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 13, seed: 2}",
       "training={global_batch_size: 24, max_steps: 2}", "evaluation.eval_steps=1"});
  const LayoutRun one = layout_run(network, 1, {});
  for (int ranks : {2, 3}) {
    const LayoutRun shards = layout_run(network, ranks, over_tensor_ranks(ranks));
    CHECK(greatest_difference(shards.losses, one.losses) < 1e-5);
    REQUIRE_FALSE(one.accuracies.empty());
    CHECK(greatest_difference(shards.accuracies, one.accuracies) < 1e-12);
    CHECK(shards.evaluation == Approx(one.evaluation).epsilon(1e-5));
  }
}

TEST_CASE("only the norm of BERT's head gathers shards") {
  for (const Network& network : transformers()) {
    // The linear layer after ALBERT's embedding, and ViT's convolution, have columns that no other
    // layer takes as rows.
    if (network.name == std::string("albert") || network.name == std::string("vit")) continue;
    run_rank_threads(2, [&](ThreadCollectives& ranks) {
      Experiment experiment = layout_experiment(network, over_tensor_ranks(2));
      const Session session = open_session(experiment, layout_options(ranks));
      INFO(network.name);
      const std::vector<std::string>& gathered = session.executor->training().gathered;
      const bool head = network.name == std::string("bert");
      if (ranks.rank() == 0) CHECK(gathered.size() == (head ? 1 : 0));
      if (ranks.rank() == 0 && head) {
        CHECK(gathered[0].ends_with("LayerNorm: layer_norm"));
      }
    });
  }
}

TEST_CASE("heads that cannot be divided among the ranks are refused at the key") {
  const auto refused = [](int ranks) {
    return refusal_of(
        [&] {
          run_rank_threads(ranks, [&](ThreadCollectives& collectives) {
            Experiment experiment = layout_experiment(transformers()[1], over_tensor_ranks(ranks));
            open_session(experiment, layout_options(collectives));
          });
        },
        ExitCode::usage);
  };
  CHECK_THAT(refused(4), Catch::Matchers::Contains("-s parallelism.tensor=4") &&
                             Catch::Matchers::Contains(
                                 "model.layers.0.self_attn.9: 3 heads of keys and values cannot be "
                                 "divided among 4 ranks; numbers of ranks that fit: 1, 2, 3, 6"));
}

TEST_CASE("LARS, LAMB, Adafactor and averages of weights work with tensor parallelism") {
  const std::vector<std::string> ema{
      "training={global_batch_size: 24, max_steps: 4, max_grad_norm: 0.5, ema: {decay: 0.9}}",
      "data.eval={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 13, seed: 2}",
      "evaluation.eval_steps=2"};
  for (std::vector<std::string> variation :
       {std::vector<std::string>{"optimizer={type: lars, learning_rate: 0.1}"},
        {"optimizer={type: lamb, learning_rate: 0.01}"},
        {"optimizer={type: adafactor, learning_rate: 0.01}"},
        ema}) {
    for (const Network& network : transformers()) {
      if (variation == ema && network.name != transformers()[0].name) continue;
      const LayoutRun one = layout_run(network, 1, variation);
      for (int stage : {0, 1, 2, 3}) {
        INFO(variation.front() << ", " << network.name << ", stage " << stage);
        std::vector<std::string> sharded = over_tensor_ranks(2, variation);
        sharded.push_back(fmt::format("parallelism.zero_stage={}", stage));
        const LayoutRun shards = layout_run(network, 4, sharded);
        CHECK(greatest_difference(shards.losses, one.losses) < 1e-5);
        CHECK(greatest_difference(shards.norms, one.norms) < 1e-5);
        CHECK(shards.state.size() == one.state.size());
        if (variation == ema) CHECK(shards.evaluation == Approx(one.evaluation).epsilon(1e-5));
      }
    }
  }
}

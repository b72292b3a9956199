// Mixtures of experts under every layout of one global batch: the losses of the routers belong to
// the micro-batch, and their mean is added to the loss.
#include "run/layout_run.h"

using namespace dltrain;

namespace {

// Coefficients as large as these have an effect within a few steps.
const Network& expert_network() {
  static const Network network{
      "experts",
      {"model.layers=[{embedding: {embedding_dim: 16}}, position_embedding, {repeat: {times: 2, "
       "layers: [{residual: [layer_norm, {multi_head_attention: {num_heads: 2, causal: true}}]}, "
       "{residual: [layer_norm, {moe: {num_experts: 4, experts_per_token: 2, intermediate_size: "
       "24, balance_loss: 0.1, router_z_loss: 0.05}}]}]}}, {lm_head: {}}]",
       "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}"}};
  return network;
}

std::vector<std::string> micro_batches_of(int samples, std::vector<std::string> more = {}) {
  more.push_back(fmt::format("training.micro_batch_size={}", samples));
  return more;
}

}  // namespace

TEST_CASE("experts: a fixed reduction gives the same bits on any number of ranks") {
  const auto overrides = micro_batches_of(3, {"training.reduction=fixed"});
  const LayoutRun alone = layout_run(expert_network(), 1, overrides);
  for (int ranks : {2, 4}) {
    INFO(ranks << " ranks");
    const LayoutRun shared = layout_run(expert_network(), ranks, overrides);
    CHECK(shared.losses == alone.losses);
    CHECK(shared.state == alone.state);
  }
}

TEST_CASE("experts: ZeRO and tensor ranks have the losses of one rank") {
  const LayoutRun alone = layout_run(expert_network(), 1, micro_batches_of(12));
  for (int stage : {1, 2, 3}) {
    INFO("stage " << stage);
    const LayoutRun run =
        layout_run(expert_network(), 2,
                   micro_batches_of(12, {fmt::format("parallelism.zero_stage={}", stage)}));
    CHECK(greatest_difference(run.losses, alone.losses) < 1e-5);
  }
  const LayoutRun tensor =
      layout_run(expert_network(), 2, micro_batches_of(12, {"parallelism.tensor=2"}));
  CHECK(greatest_difference(tensor.losses, alone.losses) < 1e-5);
}

TEST_CASE("experts: a pipeline has the losses and weights of accumulation, to the bit") {
  const LayoutRun alone = layout_run(expert_network(), 1, micro_batches_of(6));
  const LayoutRun stages =
      layout_run(expert_network(), 2, micro_batches_of(6, {"parallelism.pipeline=2"}));
  CHECK(stages.losses == alone.losses);
  CHECK(stages.norms.size() == alone.norms.size());
  CHECK(greatest_difference(stages.norms, alone.norms) < 1e-6);
}

TEST_CASE("experts: recomputation changes no bit, and bf16 little") {
  const LayoutRun kept = layout_run(expert_network(), 1, {});
  for (const char* mode : {"selective", "blocks", "full"}) {
    INFO(mode);
    const LayoutRun again =
        layout_run(expert_network(), 1, {fmt::format("memory.recompute={}", mode)});
    CHECK(again.losses == kept.losses);
    CHECK(again.state == kept.state);
  }
  const LayoutRun narrow = layout_run(expert_network(), 1, {"precision.compute=bf16"});
  CHECK(greatest_difference(narrow.losses, kept.losses) < 1e-2);
}

TEST_CASE("experts: the losses of the routers depend on the micro-batch") {
  const LayoutRun whole = layout_run(expert_network(), 1, micro_batches_of(24));
  const LayoutRun cut = layout_run(expert_network(), 1, micro_batches_of(6));
  CHECK(cut.losses[0] == Approx(whole.losses[0]).epsilon(1e-6));  // that of the tokens does not
  CHECK(greatest_difference(cut.losses, whole.losses) < 1e-2);
  CHECK(cut.norms[0] != Approx(whole.norms[0]).epsilon(1e-6));
}

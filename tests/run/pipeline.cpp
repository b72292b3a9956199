// Pipeline parallelism (passes/stage_cut.h): losses, weights and checkpoints are those of one rank.
#include "checkpoint/checkpoint_writer.h"
#include "refusal.h"
#include "run/layout_run.h"
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

}  // namespace

TEST_CASE("a pipeline has the losses and weights of accumulation, to the bit") {
  for (const Network& network : {networks()[0], networks()[1]}) {
    const LayoutRun one = layout_run(network, 1, kMicro);
    for (int stages : {2, 3}) {
      for (const char* schedule : {"1f1b", "gpipe"}) {
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
    const LayoutRun one = layout_run(networks()[0], 1, {kMicro[0], variation});
    const LayoutRun run = layout_run(networks()[0], 2, over_stages(2, {variation}));
    CHECK(run.losses == one.losses);
    CHECK(run.state == one.state);
  }
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
}

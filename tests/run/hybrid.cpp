// ZeRO within groups of the ranks (parallelism.zero_shard_size): losses and weights of every
// layout, memory and messages as planned.
#include "refusal.h"
#include "run/low_precision.h"

using namespace dltrain;

namespace {

// Units of some hundred elements, so that there are several of them and tensors lie across the
// borders of ranks.
std::vector<std::string> stage_hybrid(int stage, const std::string& shard_size,
                                      std::vector<std::string> more = {}) {
  more.push_back(fmt::format("parallelism.zero_stage={}", stage));
  more.push_back("parallelism.zero_shard_size=" + shard_size);
  more.push_back("parallelism.bucket_mb=0.002");
  return more;
}

}  // namespace

TEST_CASE(
    "groups that share state give the losses of whole state, with accumulation and clipping") {
  for (const Network& network : networks()) {
    for (const auto& [ranks, shard] : {std::pair(4, "2"), std::pair(6, "3")}) {
      const std::vector<std::string> cut{"training.micro_batch_size=2"};
      const LayoutRun whole = layout_run(network, ranks, stage_hybrid(0, "all", cut));
      for (int s : {1, 2, 3}) {
        INFO(network.name << ", stage " << s << ", " << ranks << " ranks in groups of " << shard);
        const LayoutRun parts = layout_run(network, ranks, stage_hybrid(s, shard, cut));
        CHECK(greatest_difference(parts.losses, whole.losses) < 1e-5);
        CHECK(greatest_difference(parts.norms, whole.norms) < 1e-5);
        CHECK(parts.state.size() == whole.state.size());
      }
    }
  }
}

// Sums of neighbours first is the order of the tree over all ranks (comm/reduce.h).
TEST_CASE("groups of a power of two change no bit without accumulation or clipping") {
  const std::vector<std::string> plain{"training={global_batch_size: 24, max_steps: 5}"};
  for (const Network& network : networks()) {
    for (int ranks : {4, 6}) {
      const LayoutRun whole = layout_run(network, ranks, stage_hybrid(0, "all", plain));
      for (int s : {1, 2, 3}) {
        INFO(network.name << ", stage " << s << ", " << ranks << " ranks in groups of 2");
        const LayoutRun parts = layout_run(network, ranks, stage_hybrid(s, "2", plain));
        CHECK(parts.losses == whole.losses);
        CHECK(parts.state == whole.state);
      }
    }
  }
}

TEST_CASE("zero_shard_size: node means the ranks of a node") {
  const Network& mlp = networks()[0];
  const LayoutRun number = layout_run(mlp, 4, stage_hybrid(3, "2"), 2);
  const LayoutRun node = layout_run(mlp, 4, stage_hybrid(3, "node"), 2);
  CHECK(node.losses == number.losses);
  CHECK(node.report.arena_bytes == number.report.arena_bytes);
  // When the ranks ask each other to stop depends on the time.
  CHECK(std::abs(static_cast<double>(node.sent_between) -
                 static_cast<double>(number.sent_between)) < 1200);
  // All on one node, or one rank on each: nothing is left of groups, or of sharing.
  CHECK(layout_run(mlp, 4, stage_hybrid(3, "node")).report.arena_bytes ==
        layout_run(mlp, 4, stage_hybrid(3, "all")).report.arena_bytes);
  CHECK(layout_run(mlp, 2, stage_hybrid(3, "node"), 1).report.arena_bytes ==
        layout_run(mlp, 2, stage_hybrid(0, "all"), 1).report.arena_bytes);
}

TEST_CASE("a group holds the bytes of its size, and few of the messages leave it") {
  // Products alone, in bf16 with f32 masters and gradients; no padding. See zero.cpp.
  const Network products{
      "products",
      {"model.layers=[{linear: {out_features: 64, bias: false}}, {linear: {out_features: 64, bias: "
       "false}}]",
       "data.train={type: synthetic, shape: [64], classes: 64, samples: 96}",
       "precision.compute=bf16"}};
  const double parameters = 2 * 64 * 64;
  const double each[] = {6 + 12.0 / 2, 2 + 16.0 / 2, 18.0 / 2};
  // Half of each message of a step goes to the other rank of the group. Between groups each
  // part's gradient takes 2 · 1/2 of its f32, whatever the stage.
  const double scattered = 4 * parameters,
               gathered[] = {2 * parameters, 2 * parameters, 3 * parameters};
  for (int s : {1, 2, 3}) {
    INFO("stage " << s);
    const LayoutRun run = layout_run(products, 4, stage_hybrid(s, "node"), 2);
    double bytes = 0;
    for (const auto& [role, size] : run.report.state_bytes) {
      if (role == "parameters" || role == "low-precision copies" || role == "gradients" ||
          role == "optimizer moments") {
        bytes += static_cast<double>(size);
      }
    }
    CHECK(bytes == parameters * each[s - 1]);
    CHECK(run.report.arena_bytes == run.report.state_total + run.report.work_bytes);
    const Traffic& planned = run.report.traffic;
    CHECK(planned.within_node == Approx((scattered + gathered[s - 1]) / 2).margin(64));
    CHECK(planned.between_nodes == Approx(4 * parameters / 2).margin(64));
    CHECK(std::abs(planned.within_node - static_cast<double>(run.sent_within) / 5) < 1200);
    CHECK(std::abs(planned.between_nodes - static_cast<double>(run.sent_between) / 5) < 1200);
    // Cut among all ranks more would leave the node.
    const LayoutRun all = layout_run(products, 4, stage_hybrid(s, "all"), 2);
    CHECK(all.report.traffic.between_nodes > 1.4 * planned.between_nodes);
  }
}

TEST_CASE("micro-steps stay within the group: their gradients leave it once a step") {
  const Network& mlp = networks()[0];
  const auto between = [&](int micro_batch) {
    return layout_run(
               mlp, 4,
               stage_hybrid(3, "2", {fmt::format("training.micro_batch_size={}", micro_batch)}), 2)
        .report.traffic.between_nodes;
  };
  CHECK(between(1) == between(6));
}

TEST_CASE("gradients travel within groups and between them in bf16, if asked") {
  for (const Network& network : networks()) {
    const LayoutRun exact = layout_run(network, 4, stage_hybrid(0, "all"), 2);
    const LayoutRun f32 = layout_run(network, 4, stage_hybrid(2, "2"), 2);
    const Tolerance tolerance = low_precision(network, {}, kBitsOfBf16, 4);
    for (int s : {1, 2, 3}) {
      for (const char* micro_batch : {"6", "3"}) {
        INFO(network.name << ", stage " << s << ", micro-batches of " << micro_batch);
        const LayoutRun rounded =
            layout_run(network, 4,
                       stage_hybrid(s, "2",
                                    {"parallelism.reduce_dtype=bf16",
                                     "training.micro_batch_size=" + std::string(micro_batch)}),
                       2);
        // Batch norm sees other micro-batches.
        if (network.name != networks()[1].name || micro_batch[0] == '6') {
          check_close(rounded, exact, tolerance);
        }
        CHECK(rounded.report.traffic.between_nodes < 0.7 * f32.report.traffic.between_nodes);
      }
    }
  }
}

TEST_CASE("bf16 and fp16 models train in groups, and an evaluation is that of whole state") {
  const std::vector<std::string> eval{
      "data.eval={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 13, seed: 2}",
      "training={global_batch_size: 24, max_steps: 2}", "evaluation.eval_steps=1"};
  for (const char* precision : {"f32", "bf16", "fp16"}) {
    std::vector<std::string> all = eval;
    all.push_back(std::string("precision.compute=") + precision);
    const LayoutRun whole = layout_run(networks()[0], 4, stage_hybrid(0, "all", all));
    const int bits = precision[0] == 'b' ? kBitsOfBf16 : kBitsOfFp16;
    const Tolerance tolerance =
        precision[1] == '3' ? kToleranceOfF32 : low_precision(networks()[0], eval, bits);
    for (int s : {1, 2, 3}) {
      INFO(precision << ", stage " << s);
      const LayoutRun parts = layout_run(networks()[0], 4, stage_hybrid(s, "2", all));
      check_close(parts, whole, tolerance);
      CHECK(parts.evaluation == Approx(whole.evaluation).epsilon(tolerance.losses));
    }
  }
}

TEST_CASE("groups that cannot be are refused by name and place") {
  const auto refused = [](const std::vector<std::string>& overrides, int ranks,
                          const std::string& says) {
    std::string message;
    try {
      rank_mesh(layout_experiment(networks()[0], overrides), ranks, 0);
    } catch (const ConfigError& error) {
      message = error.what();
    }
    INFO(message);
    CHECK(message.find(says) != std::string::npos);
  };
  refused(stage_hybrid(1, "3"), 4, "4 ranks cannot be divided into groups of 3");
  refused(stage_hybrid(1, "some"), 4, "'some' is neither all, node nor a number of ranks");
  refused(stage_hybrid(1, "0"), 4, "'0' is neither");
  refused(stage_hybrid(1, "2.5"), 4, "'2.5' is neither");
  refused(stage_hybrid(0, "2"), 4, "zero_shard_size 2 has no effect with zero_stage 0");
  // The same file runs on fewer ranks than a group has.
  const Experiment experiment = layout_experiment(networks()[0], stage_hybrid(1, "8"));
  CHECK(rank_mesh(experiment, 4, 0).size(mesh_axes::kShard) == 4);
  CHECK(rank_mesh(experiment, 1, 0).size() == 1);
}

// optimizer.galore: what it works together with.
#include "refusal.h"
#include "run/layout_run.h"
#include "run/short_run.h"

using namespace dltrain;

namespace {

std::vector<std::string> with_galore(std::vector<std::string> more = {},
                                     const std::string& keys = "") {
  more.push_back(
      fmt::format("optimizer={{type: adamw, learning_rate: 0.01{}, galore: {{rank: 3, update_gap: "
                  "2, scale: 1}}}}",
                  keys));
  return more;
}

}  // namespace

TEST_CASE("galore trains other weights with fewer moments, and gives the same bits twice") {
  for (const char* layers : {kMlp, kConvnet}) {
    for (const char* compute : {"f32", "bf16", "fp16"}) {
      const std::string precision = fmt::format("precision.compute={}", compute);
      INFO(layers << " in " << compute);
      const ShortRun plain = short_run(layers, {.overrides = {precision}});
      const ShortRun low = short_run(layers, {.overrides = with_galore({precision})});
      CHECK(low.state.size() < plain.state.size());
      CHECK(greatest_difference(low, plain) > 1e-6);
      CHECK(short_run(layers, {.overrides = with_galore({precision})}).state == low.state);
      const auto recomputed = with_galore({precision, "memory.recompute=full"});
      CHECK(short_run(layers, {.overrides = recomputed}).state == low.state);
    }
  }
}

TEST_CASE("galore has the same bits whatever the number of ranks, also with moments in 8 bits") {
  for (const Network& network : networks()) {
    for (const char* keys : {"", ", moments: 8bit, min_8bit_size: 100"}) {
      INFO(network.name << keys);
      const auto fixed = with_galore(
          {"training.reduction=fixed", "training.micro_batch_size=3", "training.max_grad_norm=0.5"},
          keys);
      const LayoutRun alone = layout_run(network, 1, fixed);
      for (int ranks : {2, 4}) {
        const LayoutRun shared = layout_run(network, ranks, fixed);
        CHECK(shared.losses == alone.losses);
        CHECK(shared.state == alone.state);
      }
    }
  }
}

TEST_CASE("ZeRO shards what galore does not project, and gives the same bits") {
  for (const Network& network : networks()) {
    for (const char* keys : {"", ", moments: 8bit, min_8bit_size: 100"}) {
      const auto overrides = with_galore({"training.micro_batch_size=12"}, keys);
      const LayoutRun copies = layout_run(network, 2, overrides);
      for (const char* stage : {"parallelism.zero_stage=1", "parallelism.zero_stage=2"}) {
        INFO(network.name << keys << ", " << stage);
        const LayoutRun sharded =
            layout_run(network, 2, with_galore({"training.micro_batch_size=12", stage}, keys));
        CHECK(sharded.losses == copies.losses);
        CHECK(sharded.report.state_total < copies.report.state_total);
      }
    }
  }
}

TEST_CASE("stages of a pipeline project the gradients of one rank") {
  const LayoutRun one = layout_run(networks()[0], 1, with_galore({"training.micro_batch_size=4"}));
  const LayoutRun two = layout_run(
      networks()[0], 2, with_galore({"training.micro_batch_size=4", "parallelism.pipeline=2"}));
  CHECK(two.losses == one.losses);
  CHECK(two.state == one.state);
}

TEST_CASE("galore takes the bytes that the formula says") {
  const Network products{"products",
                         {"model.layers=[{linear: 64}, {linear: {out_features: 32, bias: false}}]",
                          "data.train={type: synthetic, shape: [96], classes: 32, samples: 96}"}};
  const auto moments = [&](const std::string& keys) {
    const LayoutRun run = layout_run(products, 1, with_galore({}, keys));
    for (const auto& [role, bytes] : run.report.state_bytes) {
      if (role == "optimizer moments") return bytes;
    }
    return size_t{0};
  };
  // The shorter side m, the longer n, rank 3: m·3 + 2·n·3 numbers for a matrix; and the bias.
  constexpr size_t kProjections = 4 * 3 * (64 + 32), kMoments = 2 * 3 * (96 + 64), kBias = 2 * 64;
  CHECK(moments("") == kProjections + 4 * kMoments + 4 * kBias);
  // Blocks of 256 codes have a scale: two for 288 and one for 192.
  CHECK(moments(", moments: 8bit, min_8bit_size: 100") ==
        kProjections + kMoments + 2 * 4 * (2 + 1) + 4 * kBias);
}

TEST_CASE("what galore does not go with is refused at its key") {
  using Catch::Matchers::Contains;
  for (const char* key : {"parallelism.zero_stage=3", "parallelism.tensor=2",
                          "training.optimizer_in_backward=true", "training.max_grad_value=1"}) {
    INFO(key);
    auto overrides = with_galore(networks()[2].overrides);
    overrides.emplace_back("training={global_batch_size: 24, max_steps: 2}");
    overrides.push_back(key);
    const std::string text = refusal_of(
        [&] { load_config<Experiment>({.files = {}, .overrides = overrides}); }, ExitCode::usage);
    CHECK_THAT(text, Contains("galore "));
  }
}

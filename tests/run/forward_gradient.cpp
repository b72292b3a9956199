// training.gradient: forward: what it works together with, and its memory.
#include "refusal.h"
#include "run/layout_run.h"
#include "run/short_run.h"

using namespace dltrain;

namespace {

std::vector<std::string> forward(std::vector<std::string> more = {}) {
  more.emplace_back("training.gradient=forward");
  return more;
}

// The greatest number of bytes of a step besides state, of an MLP with so many layers.
size_t work_bytes(int depth, const char* gradient) {
  std::string layers;
  for (int i = 0; i < depth; ++i) layers += "{linear: 16}, gelu, ";
  const Network network{"deep",
                        {"model.layers=[" + layers + "{linear: 4}]",
                         "data.train={type: synthetic, shape: [16], classes: 4, samples: 4096}",
                         "training={global_batch_size: 2048, max_steps: 1}",
                         fmt::format("training.gradient={}", gradient)}};
  const PlanReport report = layout_run(network, 1, {}).report;
  return report.work_bytes;
}

}  // namespace

TEST_CASE("a forward gradient learns, and gives the same bits twice") {
  for (const char* layers : {kMlp, kConvnet}) {
    for (const char* precision : {"precision.compute=f32", "precision.compute=bf16"}) {
      INFO(layers << " with " << precision);
      const ShortRun plain = short_run(layers, {.overrides = {precision}});
      const ShortRun run = short_run(layers, {.overrides = forward({precision})});
      CHECK(greatest_difference(run, plain) > 1e-6);
      CHECK(short_run(layers, {.overrides = forward({precision})}).state == run.state);
      const auto more = forward({precision, "training.directions=3"});
      CHECK(greatest_difference(short_run(layers, {.overrides = more}), run) > 1e-6);
    }
  }
}

TEST_CASE("a forward gradient has the same directions on all ranks and in all micro-batches") {
  for (size_t i : {0, 1}) {
    const Network& network = networks()[i];
    INFO(network.name);
    const auto fixed = forward(
        {"training.reduction=fixed", "training.micro_batch_size=3", "training.directions=2"});
    const LayoutRun alone = layout_run(network, 1, fixed);
    for (const int ranks : {2, 4}) {
      INFO(ranks << " ranks");
      const LayoutRun shared = layout_run(network, ranks, fixed);
      CHECK(shared.losses == alone.losses);
      CHECK(shared.state == alone.state);
    }
    const LayoutRun copies = layout_run(network, 2, forward());
    for (const char* stage : {"1", "2", "3"}) {
      INFO("ZeRO stage " << stage);
      const std::string zero = std::string("parallelism.zero_stage=") + stage;
      CHECK(layout_run(network, 2, forward({zero})).losses == copies.losses);
    }
  }
}

TEST_CASE("the memory of a forward gradient does not grow with depth") {
  const size_t shallow = work_bytes(4, "forward"), deep = work_bytes(32, "forward");
  CHECK(deep < shallow + shallow / 4);  // the gradients of 28 small layers
  CHECK(work_bytes(32, "reverse") > 4 * work_bytes(4, "reverse"));
}

TEST_CASE("what a forward gradient does not go with is refused at its key") {
  using Catch::Matchers::Contains;
  for (const char* key : {"parallelism.tensor=2", "parallelism.pipeline=2", "memory.recompute=full",
                          "training.optimizer_in_backward=true"}) {
    INFO(key);
    auto overrides = forward(networks()[0].overrides);
    overrides.emplace_back("optimizer=adamw");
    overrides.emplace_back("training.global_batch_size=24");
    overrides.emplace_back("training.max_steps=2");
    overrides.emplace_back(key);
    const std::string text = refusal_of(
        [&] { load_config<Experiment>({.files = {}, .overrides = overrides}); }, ExitCode::usage);
    CHECK_THAT(text, Contains("forward"));
  }
  const std::string text = refusal_of(
      [&] { layout_run(networks()[2], 1, forward({"training.max_steps=1"})); }, ExitCode::usage);
  CHECK_THAT(text, Contains("training.gradient: forward has no rule for attention"));
}

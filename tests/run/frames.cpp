// Several micro-batches between forward and backward at a time, as pipelines have them: the same
// bits as one after the other (graph/schedule.h).
#include "catch.h"
#include "run/short_run.h"

namespace dltrain {
namespace {

ShortRun run_in_flight(const std::string& layers, int64_t in_flight,
                       const std::vector<std::string>& overrides = {}) {
  Variation variation{.overrides = {"training.micro_batch_size=4"}, .in_flight = in_flight};
  variation.overrides.insert(variation.overrides.end(), overrides.begin(), overrides.end());
  return short_run(layers, variation);
}

TEST_CASE("losses and weights do not depend on the number of micro-batches in flight") {
  // Dropout reads the position of its own micro-batch in the backward too; batch norm adds up
  // statistics in the forward.
  for (const char* layers : {kMlp, kConvnet}) {
    for (const char* reduction : {"fast", "fixed"}) {
      const std::vector<std::string> overrides{fmt::format("training.reduction={}", reduction)};
      const ShortRun accumulated = run_in_flight(layers, 1, overrides);
      REQUIRE(accumulated.losses.size() == 8);
      for (int64_t in_flight : {2, 3, 4}) {
        INFO(layers << ", " << reduction << ", " << in_flight << " in flight");
        const ShortRun overlapped = run_in_flight(layers, in_flight, overrides);
        CHECK(overlapped.losses == accumulated.losses);
        CHECK(overlapped.state == accumulated.state);
      }
    }
  }
}

TEST_CASE("each frame has activations of its own, and the plan says so") {
  auto experiment = load_config<Experiment>(
      {.files = {},
       .overrides = {std::string("model.layers=") + kMlp,
                     "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 64}",
                     "optimizer={type: sgd, learning_rate: 0.01}",
                     "training={global_batch_size: 16, micro_batch_size: 4, max_steps: 1}",
                     "device=cpu"}});
  const auto work_bytes = [&](int64_t in_flight) {
    const Session session = open_session(
        experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()},
                     .in_flight = in_flight});
    return session.executor->report().work_bytes;
  };
  // What the forward keeps for the backward; the rest is shared.
  const size_t kept = work_bytes(4) - work_bytes(3);
  CHECK(kept > 0);
  CHECK(kept < work_bytes(1));
  CHECK(work_bytes(3) - work_bytes(2) == kept);
  CHECK(work_bytes(2) <= 2 * work_bytes(1));
}

}  // namespace
}  // namespace dltrain

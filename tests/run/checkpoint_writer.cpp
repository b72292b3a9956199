// Saving beside the training: errors come out, what was complete stays, the state is that of the
// moment of the call.
#include "checkpoint/checkpoint_writer.h"

#include "base/faulty_disk.h"
#include "catch.h"
#include "config/load.h"
#include "cpu/engine.h"
#include "reference/engine.h"
#include "run/session.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

struct Model {
  Experiment experiment = load_config<Experiment>(
      {.files = {},
       .overrides = {"model.layers=[{linear: 8}]", "device=cpu",
                     "data.train={type: synthetic, shape: [16], classes: 8, samples: 64}",
                     "optimizer={type: adamw, learning_rate: 0.01}",
                     "training={global_batch_size: 16, max_steps: 8}"}});
  Session session = open_session(
      experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}});
  Model() { start_session(session); }

  Executor& executor() { return *session.executor; }
  std::vector<float> weights() {
    std::vector<float> values(16 * 8);
    executor().read_state("layers.0.weight", std::as_writable_bytes(std::span(values)));
    return values;
  }
  void set_weights(float value) {
    const std::vector<float> values(16 * 8, value);
    executor().write_state("layers.0.weight", std::as_bytes(std::span(values)));
  }
};

CheckpointState at_checkpoint_writer(int64_t step) {
  return {.step = step,
          .updates = step,
          .samples_seen = 16 * step,
          .seed = 0,
          .global_batch = 16,
          .train_samples = 64};
}

}  // namespace

TEST_CASE("a checkpoint holds the state at the call, not what came while it was written") {
  const TemporaryFolder folder;
  Model model;
  CheckpointWriter writer(folder.path(), {}, "name: x\n", true);
  model.set_weights(1);
  writer.save(model.executor(), at_checkpoint_writer(1));
  model.set_weights(2);
  CHECK(writer.finish() == folder.path() / "step-000001");
  CHECK_FALSE(writer.finish());
  load_checkpoint(model.executor(), folder.path() / "step-000001",
                  read_checkpoint_state(folder.path() / "step-000001"));
  CHECK(model.weights() == std::vector<float>(16 * 8, 1));
}

TEST_CASE("the last checkpoint of a run is written without a copy, and holds the same") {
  const TemporaryFolder folder;
  Model model;
  CheckpointWriter writer(folder.path(), {}, "name: x\n", true);
  for (bool last : {false, true}) {
    model.set_weights(last ? 4 : 3);
    writer.save(model.executor(), at_checkpoint_writer(last ? 2 : 1), last);
    if (last) model.set_weights(5);
    const auto path = last ? writer.poll() : writer.finish();
    REQUIRE(path);
    load_checkpoint(model.executor(), *path, read_checkpoint_state(*path));
    CHECK(model.weights() == std::vector<float>(16 * 8, last ? 4.0f : 3.0f));
  }
}

TEST_CASE("a write that fails comes out of the next call and leaves the checkpoints before it") {
  const TemporaryFolder folder;
  Model model;
  CheckpointWriter writer(folder.path(), {.newest = 1}, "name: x\n", true);
  writer.save(model.executor(), at_checkpoint_writer(1));
  writer.finish();
  for (int call : {0, 1, 5, 9}) {
    FaultyDisk disk(FaultyDisk::Fault::error, call);
    const ReplaceSystemCalls replaced(disk);
    writer.save(model.executor(), at_checkpoint_writer(2));
    CHECK_THROWS_AS(writer.finish(), Error);
  }
  CHECK_NOTHROW(read_checkpoint_state(folder.path() / "latest"));
  CHECK(CheckpointFolder(folder.path()).list().size() == 1);
  writer.save(model.executor(), at_checkpoint_writer(3));
  CHECK(writer.finish());
  CHECK(read_checkpoint_state(folder.path() / "latest").step == 3);
}

TEST_CASE("best and kept checkpoints outlive the limit") {
  const TemporaryFolder folder;
  Model model;
  CheckpointWriter writer(folder.path(), {.newest = 1, .keep_every = 4}, "name: x\n", false);
  CheckpointState state = at_checkpoint_writer(0);
  for (int64_t step = 1; step <= 10; ++step) {
    state.step = step;
    if (step == 3 || step == 6) state.best = {.metric = "loss", .step = step, .value = 1.0};
    writer.save(model.executor(), state);
    CHECK(writer.poll());
  }
  std::vector<int64_t> left;
  for (const auto& path : CheckpointFolder(folder.path()).list()) {
    left.push_back(checkpoint_step(path));
  }
  CHECK(left == std::vector<int64_t>{4, 6, 8, 10});
  const CheckpointState best = read_checkpoint_state(folder.path() / "best");
  CHECK(best.step == 6);
  CHECK(best.best == state.best);
}

TEST_CASE("a watch counts what is not better, and takes nothing that is not finite for better") {
  MetricWatch watch("accuracy", default_mode("accuracy"), 0.1);
  CHECK_FALSE(watch.observe(1, NAN));
  CHECK(watch.observe(2, 0.5));
  CHECK_FALSE(watch.observe(3, 0.6));  // not by more than 0.1
  CHECK_FALSE(watch.observe(4, INFINITY));
  CHECK(watch.record().since == 2);
  CHECK(watch.observe(5, 0.75));
  CHECK(watch.record() == MetricRecord{"accuracy", 5, 0.75, 0});
  CHECK(MetricWatch("accuracy", MetricMode::max, 0, watch.record()).record().step == 5);
  CHECK(MetricWatch("loss", MetricMode::min, 0, watch.record()).record().step == 0);
  CHECK(default_mode("loss") == MetricMode::min);
}

// The recorded parts of steps; recording changes no result.
#include "profile/recorder.h"

#include <cstring>

#include "catch.h"
#include "profile/watching.h"

using namespace dltrain;

namespace {

struct Watched {
  Experiment experiment;
  Session session;
  Recording recording;

  explicit Watched(const std::vector<std::string>& more, int64_t from = 4, int64_t steps = 6)
      : experiment(small_experiment(more)),
        session(open_session(experiment, {.engines = host_engines()})) {
    start_session(session);
    Recorder recorder(*session.executor, 2, session.batch.micro_steps);
    train(session, {},
          {.run_folder = {},
           .resolved_config = {},
           .handle_signals = false,
           .steps = steps,
           .observer = &recorder,
           .observed_from = from});
    recording = recorder.take();
  }
};

TEST_CASE("every call of the observed steps is seen once, in order, inside its step") {
  const int64_t micro_steps = GENERATE(1, 2);
  CAPTURE(micro_steps);
  const Watched run({fmt::format("training.gradient_accumulation_steps={}", micro_steps)});
  const Recording& r = run.recording;
  const Program& program = run.session.executor->training_program();
  std::vector<size_t> expected;
  const auto add = [&](Phase phase, MicroStep variant) {
    const auto& segment = program.segment(phase, variant);
    expected.insert(expected.end(), segment.begin(), segment.end());
  };
  for (int step = 0; step < 2; ++step) {
    for (int64_t a = 0; a < micro_steps; ++a) {
      add(Phase::forward, micro_step_of(a, micro_steps));
      add(Phase::backward, micro_step_of(a, micro_steps));
    }
    add(Phase::update, MicroStep::only);
  }
  std::vector<size_t> seen;
  for (const CallEvent& event : r.calls) seen.push_back(event.call);
  CHECK(seen == expected);
  CHECK(r.synchronous);

  std::vector<PartEvent> steps;
  std::array<int64_t, kStepParts> counts{};
  for (const PartEvent& part : r.parts) {
    CHECK(part.end >= part.begin);
    ++counts[static_cast<size_t>(part.part)];
    if (part.part == StepPart::step) steps.push_back(part);
  }
  CHECK(counts[static_cast<size_t>(StepPart::step)] == 2);
  CHECK(counts[static_cast<size_t>(StepPart::data)] == 2 * micro_steps);
  CHECK(counts[static_cast<size_t>(StepPart::inputs)] == 2 * micro_steps);
  CHECK(steps[0].index == 4);
  int64_t before = 0;
  for (size_t i = 0; i < r.calls.size(); ++i) {
    const PartEvent& step = steps[2 * i / r.calls.size()];
    CHECK(r.calls[i].begin >= std::max(before, step.begin));
    CHECK(r.calls[i].end <= step.end);
    before = r.calls[i].end;
  }
}

TEST_CASE("batches are seen where they are filled, in parts by several threads") {
  const Watched one({"data.workers=1"}, 0), two({"data.workers=2"}, 0);
  const auto fills_of = [](const Watched& run, int worker) {
    int64_t count = 0;
    for (const FillEvent& fill : run.recording.fills) {
      CHECK(fill.end >= fill.begin);
      count += fill.worker == worker ? 1 : 0;
    }
    return count;
  };
  // Batches that were ready before the first step was seen are left out.
  CHECK(fills_of(one, 0) >= 2);
  CHECK(fills_of(one, 1) == 0);
  CHECK(fills_of(two, 0) >= 2);
  CHECK(fills_of(two, 1) >= 2);
}

TEST_CASE("steps that are watched do what others do") {
  Experiment experiment = small_experiment();
  Session plain = open_session(experiment, {.engines = host_engines()});
  start_session(plain);
  train(plain, {}, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  Watched watched({}, 2);
  CHECK(plain.executor->read_checkpointed() == watched.session.executor->read_checkpointed());
  CHECK(watched.recording.calls.size() > 0);
}

TEST_CASE("a part of a run ends after so many steps") {
  Watched short_run({}, 1, 3);
  int64_t steps = 0;
  for (const PartEvent& part : short_run.recording.parts) steps += part.part == StepPart::step;
  CHECK(steps == 2);
}

}  // namespace

// Figures from recordings: real ones for sums, made-up ones for what belongs where.
#include "profile/summary.h"

#include "catch.h"
#include "profile/watching.h"

using namespace dltrain;
using Catch::Matchers::WithinRel;

namespace {

struct Plans {
  Experiment experiment = small_experiment();
  Session session = open_session(experiment, {.engines = host_engines(), .evaluation = false});
  const Program& program = session.executor->training_program();

  // A step of 1000 µs: 5 µs of data, then every call for 2 µs with 1 µs between.
  Recording step(bool synchronous) const {
    constexpr int64_t us = 1000;
    Recording out;
    out.synchronous = synchronous;
    out.parts = {{StepPart::step, 0, 0, 1000 * us}, {StepPart::data, 0, 0, 5 * us}};
    int64_t at = 10 * us;
    for (Phase phase : {Phase::forward, Phase::backward, Phase::update}) {
      for (size_t call : program.segment(phase, MicroStep::only)) {
        out.calls.push_back({&program, call, at, at + 2 * us});
        at += 3 * us;
      }
    }
    return out;
  }
};

double share(const Profile& profile, std::string_view name) {
  for (const StepShare& s : profile.shares) {
    if (s.name == name) return s.seconds;
  }
  FAIL("no share is named " << name);
  return 0;
}

TEST_CASE("shares are the whole step, and rows are the kernels' part of it") {
  const Plans plans;
  const Profile profile = summarize(plans.step(true), {.flops_f32 = 1e9, .bytes = 1e9});
  CHECK(profile.steps == 1);
  CHECK_THAT(profile.step_seconds, WithinRel(1e-3, 1e-12));
  double sum = 0;
  for (const StepShare& s : profile.shares) sum += s.seconds;
  CHECK_THAT(sum, WithinRel(1e-3, 1e-12));
  CHECK_THAT(share(profile, "data"), WithinRel(5e-6, 1e-12));
  const auto calls = static_cast<double>(plans.step(true).calls.size());
  const double kernels =
      share(profile, "forward") + share(profile, "backward") + share(profile, "update");
  CHECK_THAT(kernels, WithinRel(2e-6 * calls, 1e-9));
  for (const auto* rows : {&profile.ops, &profile.layers, &profile.calls}) {
    double seconds = 0, count = 0, parts = 0;
    for (const ProfileRow& row : *rows) {
      seconds += row.seconds;
      count += row.calls;
      parts += row.forward + row.backward + row.update;
    }
    CHECK_THAT(seconds, WithinRel(kernels, 1e-9));
    CHECK_THAT(parts, WithinRel(kernels, 1e-9));
    CHECK(count == calls);
    CHECK(std::is_sorted(rows->begin(), rows->end(),
                         [](const auto& a, const auto& b) { return a.seconds > b.seconds; }));
  }
}

TEST_CASE("rates follow from the costs of the plan, and the limit from the nearer bound") {
  const Plans plans;
  const MachineLimits limits{.flops_f32 = 1e9, .bytes = 2e9};
  const Profile profile = summarize(plans.step(true), limits);
  double flops = 0;
  for (const ProfileRow& row : profile.ops) flops += row.flops;
  CHECK_THAT(flops, WithinRel(plans.session.executor->report().flops_per_step, 1e-9));
  // The product of the first layer forward: [16, 12] · [12, 24].
  CallWorkCache works(limits);
  for (size_t i = 0; i < plans.program.calls().size(); ++i) {
    const CallWork& work = works.of({.program = &plans.program, .call = i});
    CHECK(work.limit_seconds >= work.cost.flops / 1e9);
    CHECK(work.limit_seconds >= work.cost.bytes / 2e9);
    CHECK(work.limit_seconds <= std::max(work.cost.flops / 1e9, work.cost.bytes / 2e9));
    if (work.op == "matmul" && work.layer == "layers.0" && work.phase == Phase::forward) {
      CHECK(work.cost.flops == 2.0 * 16 * 12 * 24);
    }
  }
}

TEST_CASE("where the device works by itself, its times count and idle time is named") {
  const Plans plans;
  Recording recording = plans.step(false);
  constexpr int64_t us = 1000;
  // One kernel of the first call at 100 µs, two of the last at 300 µs, on two streams at once, and
  // a copy that nobody asked for.
  const auto last = static_cast<int64_t>(recording.calls.size()) - 1;
  recording.device = {{.name = "first", .tag = 0, .begin = 100 * us, .end = 200 * us},
                      {.name = "copy", .tag = -1, .begin = 200 * us, .end = 250 * us},
                      {.name = "a", .tag = last, .begin = 300 * us, .end = 320 * us},
                      {.name = "b", .tag = last, .begin = 310 * us, .end = 330 * us}};
  recording.parts.push_back({StepPart::results, 0, 400 * us, 1000 * us});
  const Profile profile = summarize(recording, {.flops_f32 = 1e9, .bytes = 1e9});
  CHECK_THAT(share(profile, "forward"), WithinRel(100e-6, 1e-9));
  CHECK_THAT(share(profile, "update"), WithinRel(30e-6, 1e-9));
  CHECK_THAT(share(profile, "data"), WithinRel(5e-6, 1e-9));
  CHECK_THAT(share(profile, "results"), WithinRel(600e-6, 1e-9));
  CHECK_THAT(share(profile, "host"), WithinRel((1000 - 100 - 30 - 5 - 600) * 1e-6, 1e-9));
}

}  // namespace

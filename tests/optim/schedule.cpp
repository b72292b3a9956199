#include "optim/schedule.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "catch.h"
#include "config/bind.h"
#include "config/yaml.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

struct ScheduleSection {
  std::unique_ptr<Schedule> schedule;
  void describe(Fields& f) {
    f.one_of("lr_scheduler", schedule, schedule_table(), {.doc = "The schedule", .required = true});
  }
};

std::string read_schedule(const std::string& text, ScheduleSection& section) {
  Diagnostics diagnostics;
  const auto source =
      std::make_shared<Source>(Source{"exp.yaml", fmt::format("lr_scheduler: {}", text)});
  if (const auto tree = read_yaml(source, 0, diagnostics)) bind(section, *tree, diagnostics);
  return diagnostics.describe();
}

std::unique_ptr<Schedule> schedule(const std::string& text) {
  ScheduleSection section;
  REQUIRE(read_schedule(text, section) == "");
  return std::move(section.schedule);
}

std::string mistakes_in_schedule(const std::string& text) {
  ScheduleSection section;
  return read_schedule(text, section);
}

// Every schedule that takes the common keys, with those it needs besides.
const std::vector<std::string> kWarming = {"type: constant",
                                           "type: linear",
                                           "type: cosine, restarts: 2",
                                           "type: step, step_size: 7",
                                           "type: polynomial",
                                           "type: inverse_sqrt",
                                           "type: wsd",
                                           "type: exponential, gamma: 0.9"};

TEST_CASE("the warmup rises in equal steps to the peak and does not begin at zero") {
  for (const std::string& kind : kWarming) {
    INFO(kind);
    for (const char* warmup : {"warmup_steps: 4", "warmup_ratio: 0.031"}) {
      const auto s = schedule("{" + kind + ", " + warmup + "}");
      CHECK(s->factor(0, 100) == 0.25);
      CHECK(s->factor(1, 100) == 0.5);
      CHECK(s->factor(3, 100) == 1.0);
    }
  }
}

TEST_CASE("what does not fit into the run is told") {
  const auto misfits = [](const std::string& text) {
    std::string all;
    for (const std::string& sentence : schedule(text)->misfits(100)) all += sentence + "\n";
    return all;
  };
  for (const std::string& kind : kWarming) {
    INFO(kind);
    CHECK(misfits("{" + kind + ", warmup_steps: 100}") == "");
    CHECK_THAT(misfits("{" + kind + ", warmup_steps: 400}"),
               Contains("warmup_steps 400 is more than the run's 100 steps") &&
                   Contains("0.25 of its peak"));
  }
  CHECK(misfits("{type: wsd, warmup_steps: 20, decay_steps: 80}") == "");
  CHECK_THAT(misfits("{type: wsd, warmup_steps: 20, decay_steps: 81}"),
             Contains("decay_steps 81 is more than the 80 steps"));
  CHECK(misfits("{type: step, step_size: 99}") == "");
  CHECK_THAT(misfits("{type: step, step_size: 100}"), Contains("it never falls"));
  CHECK(misfits("{type: step, milestones: [50, 200]}") == "");
  CHECK_THAT(misfits("{type: step, milestones: [150, 200]}"), Contains("after 150 steps"));
}

TEST_CASE("the decay ends at min_ratio in the last step") {
  CHECK(schedule("{type: constant, warmup_steps: 10}")->factor(99, 100) == 1);
  for (const char* kind : {"linear", "cosine", "polynomial", "wsd"}) {
    INFO(kind);
    const auto s = schedule(fmt::format("{{type: {}, warmup_steps: 10, min_ratio: 0.1}}", kind));
    CHECK(s->factor(99, 100) == Approx(0.1));
    CHECK(s->factor(500, 100) == Approx(0.1));
  }
  CHECK(schedule("{type: cosine}")->factor(99, 100) == Approx(0).margin(1e-15));
  CHECK(schedule("{type: exponential, gamma: 0.5, min_ratio: 0.25}")->factor(99, 100) == 0.25);
  CHECK(schedule("{type: step, step_size: 1, min_ratio: 0.25}")->factor(99, 100) == 0.25);
  CHECK(schedule("{type: inverse_sqrt, timescale: 1, min_ratio: 0.25}")->factor(99, 100) == 0.25);
}

TEST_CASE("a run that is no longer than its warmup stays defined") {
  for (const std::string& kind : kWarming) {
    INFO(kind);
    const auto s = schedule("{" + kind + ", warmup_steps: 10}");
    CHECK(s->factor(4, 5) == 0.5);
    CHECK(s->factor(9, 10) == 1.0);
    CHECK(std::isfinite(s->factor(500, 100)));
  }
  CHECK(schedule("{type: one_cycle}")->factor(0, 1) == 1);
}

TEST_CASE("every schedule has its peak at 1 and never rises after the warmup") {
  for (const std::string& kind : kWarming) {
    INFO(kind);
    const auto s = schedule("{" + kind + "}");
    const bool restarts = kind.find("restarts") != std::string::npos;
    double last = 1;
    for (int64_t step = 0; step < 50; ++step) {
      const double factor = s->factor(step, 50);
      CHECK((factor <= last || restarts));
      CHECK((factor >= 0 && factor <= 1));
      last = factor;
    }
  }
}

// tests/golden/schedules.json, recorded from PyTorch's and Hugging Face's formulas by
// scripts/record_golden_schedules.py: {"<configuration>": {"steps": N, "factors": […]}, …}.
TEST_CASE("schedules are those of PyTorch and Hugging Face, step by step") {
  const auto golden = nlohmann::json::parse(read_file(
      DLTRAIN_SOURCE_DIR "/tests/golden/schedules.json", uint64_t{1} << 20, ExitCode::internal));
  CHECK(golden.size() >= 10);
  for (const auto& [text, record] : golden.items()) {
    INFO(text);
    const auto s = schedule(text);
    const auto steps = record["steps"].get<int64_t>();
    const auto factors = record["factors"].get<std::vector<double>>();
    REQUIRE(static_cast<int64_t>(factors.size()) == steps);
    for (int64_t step = 0; step < steps; ++step) {
      INFO(step);
      CHECK(s->factor(step, steps) ==
            Approx(factors[static_cast<size_t>(step)]).epsilon(1e-12).margin(1e-12));
    }
  }
}

TEST_CASE("schedules refuse keys that contradict or are missing") {
  CHECK_THAT(mistakes_in_schedule("{type: cosine, warmup_steps: 1, warmup_ratio: 0.1}"),
             Contains("keep one"));
  CHECK_THAT(mistakes_in_schedule("{type: step}"),
             Contains("needs either step_size or milestones"));
  CHECK_THAT(mistakes_in_schedule("{type: step, step_size: 3, milestones: [4]}"),
             Contains("needs either step_size or milestones"));
  CHECK_THAT(mistakes_in_schedule("{type: step, milestones: [4, 3]}"),
             Contains("milestones must be in ascending order"));
  CHECK_THAT(mistakes_in_schedule("{type: exponential}"), Contains("gamma"));
  // The default is no contradiction: the configuration of a run names both keys.
  CHECK(mistakes_in_schedule("{type: wsd, decay_steps: 3, decay_ratio: 0.1}").empty());
  CHECK_THAT(mistakes_in_schedule("{type: wsd, decay_steps: 3, decay_ratio: 0.2}"),
             Contains("keep one"));
  CHECK_THAT(mistakes_in_schedule("{type: one_cycle, warmup_steps: 3}"), Contains("unknown key"));
}

}  // namespace
}  // namespace dltrain

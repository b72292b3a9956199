#include "passes/recompute_chain.h"

#include <limits>
#include <map>
#include <queue>
#include <random>

#include "catch.h"

namespace dltrain {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Finds the shortest schedule by trying all: forward runs in any order, of which each keeps
// nothing, the result or, if its input is kept, a choice. What is kept stays until the backward of
// its stage.
class AllSchedules {
 public:
  AllSchedules(const std::vector<ChainStage>& stages, double memory)
      : stages_(stages), memory_(memory) {}

  double shortest() {
    const size_t n = stages_.size();
    State start{.kept = std::vector<int>(n, kNone), .left = static_cast<int>(n), .running = -1};
    queue_.push({0, start});
    while (!queue_.empty()) {
      const auto [seconds, state] = queue_.top();
      queue_.pop();
      if (!seen_.emplace(state, seconds).second) continue;
      if (state.left == 0) return seconds;
      expand(state, seconds);
    }
    return kNever;
  }

 private:
  static constexpr int kNone = -2, kResult = -1;

  struct State {
    std::vector<int> kept;  // by stage: kNone, kResult or a choice
    int left = 0;           // stages without a backward
    int running = -1;       // the stage whose result exists and is not kept; −1: none
    auto operator<=>(const State&) const = default;
  };

  double bytes(int stage, int kept) const {
    const ChainStage& s = stages_[static_cast<size_t>(stage)];
    if (kept == kNone) return 0;
    return kept == kResult ? s.result : s.choices[static_cast<size_t>(kept)].kept;
  }
  double kept_bytes(const State& state) const {
    double sum = 0;
    for (size_t s = 0; s < stages_.size(); ++s) sum += bytes(static_cast<int>(s), state.kept[s]);
    return sum;
  }

  void expand(const State& state, double seconds) {
    const int now = state.left - 1;
    const int own = state.kept[static_cast<size_t>(now)];
    const ChainStage& stage = stages_[static_cast<size_t>(now)];
    const double kept = kept_bytes(state);
    const bool has_input = now == 0 || state.kept[static_cast<size_t>(now) - 1] != kNone;
    if (own >= 0 && has_input &&
        kept - bytes(now, own) + stage.full + stage.backward_work <= memory_) {
      State next = state;
      next.kept[static_cast<size_t>(now)] = kNone;
      next.left = now;
      next.running = -1;
      // Only the backward that has run could use the result of the stage before alone.
      if (now > 0 && next.kept[static_cast<size_t>(now) - 1] == kResult) {
        next.kept[static_cast<size_t>(now) - 1] = kNone;
      }
      queue_.push({seconds + stage.choices[static_cast<size_t>(own)].again, next});
    }
    for (int s = 0; s <= now; ++s) {
      const bool input_kept = s == 0 || state.kept[static_cast<size_t>(s) - 1] != kNone;
      if (!input_kept && state.running != s - 1) continue;
      const int before = state.kept[static_cast<size_t>(s)];
      if (before != kNone) continue;
      const ChainStage& run = stages_[static_cast<size_t>(s)];
      const double input = input_kept ? 0 : stages_[static_cast<size_t>(s) - 1].result;
      if (kept + input + run.forward_work > memory_) continue;
      const int choices = input_kept ? static_cast<int>(run.choices.size()) : 0;
      for (int keep = kNone; keep < choices; ++keep) {
        State next = state;
        next.kept[static_cast<size_t>(s)] = keep;
        next.running = keep == kNone ? s : -1;
        if (kept_bytes(next) <= memory_) queue_.push({seconds + run.seconds, next});
      }
    }
  }

  struct Later {
    bool operator()(const std::pair<double, State>& a, const std::pair<double, State>& b) const {
      return a.first > b.first;
    }
  };
  const std::vector<ChainStage>& stages_;
  double memory_;
  std::priority_queue<std::pair<double, State>, std::vector<std::pair<double, State>>, Later>
      queue_;
  std::map<State, double> seen_;
};

std::vector<ChainStage> random_chain(std::mt19937& random) {
  const auto number = [&](int low, int high) {
    return static_cast<double>(std::uniform_int_distribution<int>(low, high)(random));
  };
  std::vector<ChainStage> out(std::uniform_int_distribution<size_t>(1, 5)(random));
  for (ChainStage& stage : out) {
    stage.result = number(1, 3);
    stage.full = stage.result + number(1, 6);
    stage.forward_work = stage.full + number(0, 2);
    stage.backward_work = number(0, 3);
    stage.seconds = number(1, 9);
    stage.choices = {{stage.full, 0}};
    if (number(0, 1) > 0) {
      stage.choices.push_back({stage.result + number(0, 3), number(0, 2) * stage.seconds / 2});
    }
  }
  return out;
}

TEST_CASE("the schedule of a chain is the fastest of all that keep values until their backward") {
  std::mt19937 random(1);
  int compared = 0, again = 0;
  for (int i = 0; i < 150; ++i) {
    const std::vector<ChainStage> stages = random_chain(random);
    double baseline = 0;
    for (const ChainStage& stage : stages) baseline += stage.seconds;
    const ChainPlanner planner(stages, 1000);  // more steps than bytes: a unit is a byte
    INFO("chain " << i << " of " << stages.size() << " stages");
    CHECK(AllSchedules(stages, planner.least() - 1).shortest() == kNever);
    CHECK(planner.schedule(planner.most()).seconds == 0);
    for (double memory = planner.least(); memory <= planner.most(); memory += 1) {
      INFO("memory " << memory);
      const double found = planner.schedule(memory).seconds;
      REQUIRE(found == AllSchedules(stages, memory).shortest() - baseline);
      ++compared;
      again += found > 0 ? 1 : 0;
    }
  }
  CHECK(compared > 500);
  CHECK(again > 300);
}

TEST_CASE("a long chain runs again in nested sweeps, in logarithmic memory") {
  const ChainStage stage{.result = 1,
                         .full = 4,
                         .forward_work = 4,
                         .backward_work = 1,
                         .seconds = 1,
                         .choices = {{4, 0}}};
  const ChainPlanner planner(std::vector<ChainStage>(60, stage), 300);
  const ChainSchedule least = planner.schedule(planner.least());
  CHECK(planner.least() < 12);
  CHECK(least.sweeps.size() > 20);
  // With the memory of one level (about 2·√(60·4)), each stage runs twice.
  const ChainSchedule one_level = planner.schedule(31);
  CHECK(one_level.seconds <= 60);
  CHECK(one_level.seconds > 30);
  for (const ChainSweep& sweep : least.sweeps) {
    CHECK(std::ssize(sweep.kept) == sweep.last - sweep.first + 1);
  }
}

}  // namespace
}  // namespace dltrain

#include "passes/recompute_chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace dltrain {
namespace {

constexpr float kImpossible = std::numeric_limits<float>::infinity();

// The bytes with which nothing runs again.
double bytes_of_all(const std::vector<ChainStage>& stages) {
  double kept = 0, most = 0;
  for (const ChainStage& stage : stages) {
    most = std::max(most, kept + std::max(stage.full + stage.backward_work, stage.forward_work));
    kept += stage.full;
  }
  return most;
}

}  // namespace

ChainPlanner::ChainPlanner(std::vector<ChainStage> stages, int steps)
    : stages_(std::move(stages)), before_(stages_.size() + 1), steps_(steps) {
  unit_ = std::max(1.0, bytes_of_all(stages_) / steps);
  const int n = static_cast<int>(stages_.size());
  for (size_t s = 0; s < stages_.size(); ++s) {
    const ChainStage& stage = stages_[s];
    before_[s + 1] = before_[s] + stage.seconds;
    units_.push_back({.result = units(stage.result),
                      .forward = units(stage.forward_work),
                      .backward = units(stage.full + stage.backward_work),
                      .choices = {}});
    for (const auto& choice : stage.choices) units_[s].choices.push_back(units(choice.kept));
  }
  // Rounding up may need more than the exact sum.
  steps_ += n + 2;
  table_.assign(stages_.size() * stages_.size() * static_cast<size_t>(steps_ + 1), kImpossible);
  for (int length = 1; length <= n; ++length) {
    for (int first = 0; first + length <= n; ++first) {
      const int last = first + length - 1;
      for (int memory = 0; memory <= steps_; ++memory) {
        seconds(first, last, memory) = best(first, last, memory).seconds;
      }
    }
  }
}

// Rounded to the nearest: the sums of many stages are then about right, and the memory that counts
// is that of the planned program anyway.
int ChainPlanner::units(double bytes) const {
  return static_cast<int>(std::lround(bytes / unit_));
}

float& ChainPlanner::seconds(int first, int last, int memory) {
  const size_t row = static_cast<size_t>(first) * stages_.size() + static_cast<size_t>(last);
  return table_[row * static_cast<size_t>(steps_ + 1) + static_cast<size_t>(memory)];
}
float ChainPlanner::seconds(int first, int last, int memory) const {
  return memory < 0 ? kImpossible : const_cast<ChainPlanner*>(this)->seconds(first, last, memory);
}

// The paper's C_BP(first, last, memory) without the seconds of one forward and one backward run of
// each stage.
ChainPlanner::Best ChainPlanner::best(int first, int last, int memory) const {
  Best out{kImpossible};
  const ChainStage& stage = stages_[static_cast<size_t>(first)];
  const Units& size = units_[static_cast<size_t>(first)];
  if (memory < size.forward) return out;
  // The backward of `first` runs after that of all later stages.
  if (memory >= size.backward) {
    for (size_t c = 0; c < stage.choices.size(); ++c) {
      const float rest = first == last ? 0 : seconds(first + 1, last, memory - size.choices[c]);
      const float sum = rest + static_cast<float>(stage.choices[c].again);
      if (sum < out.seconds) out = {sum, -1, static_cast<int>(c)};
    }
  }
  // Only the result of the stage before `split` is kept; the stages from `first` run again later.
  for (int split = first + 1; split <= last; ++split) {
    const auto at = static_cast<size_t>(split);
    // The input of `first` is kept; those of the others exist while they run.
    const int input = split == first + 1 ? 0 : units_[at - 2].result;
    if (memory < units_[at - 1].forward + input) break;
    const float sum = seconds(split, last, memory - units_[at - 1].result) +
                      seconds(first, split - 1, memory) +
                      static_cast<float>(before_[at] - before_[static_cast<size_t>(first)]);
    if (sum < out.seconds) out = {sum, split, -1};
  }
  return out;
}

double ChainPlanner::least() const {
  const int last = static_cast<int>(stages_.size()) - 1;
  int memory = 0;
  while (memory < steps_ && seconds(0, last, memory) == kImpossible) ++memory;
  return unit_ * memory;
}
double ChainPlanner::most() const {
  const int last = static_cast<int>(stages_.size()) - 1;
  int memory = steps_;
  while (memory > 0 && seconds(0, last, memory - 1) <= seconds(0, last, steps_)) --memory;
  return unit_ * memory;
}

ChainSchedule ChainPlanner::schedule(double bytes) const {
  const int last = static_cast<int>(stages_.size()) - 1;
  const int memory = std::clamp(units(bytes), units(least()), steps_);
  ChainSchedule out{.seconds = seconds(0, last, memory), .sweeps = {}};
  const auto kept = std::vector<int>(stages_.size(), ChainSweep::kNothing);
  out.sweeps.push_back({.first = 0, .last = last, .kept = kept});
  extract(0, last, memory, 0, out);
  return out;
}

void ChainPlanner::extract(int first, int last, int memory, size_t sweep,
                           ChainSchedule& out) const {
  const Best chosen = best(first, last, memory);
  const auto kept = [&](int stage) -> int& {
    return out.sweeps[sweep].kept[static_cast<size_t>(stage - out.sweeps[sweep].first)];
  };
  if (chosen.split < 0) {
    kept(first) = chosen.choice;
    const int bytes =
        units_[static_cast<size_t>(first)].choices[static_cast<size_t>(chosen.choice)];
    if (first < last) extract(first + 1, last, memory - bytes, sweep, out);
    return;
  }
  kept(chosen.split - 1) = ChainSweep::kResult;
  const int result = units_[static_cast<size_t>(chosen.split) - 1].result;
  extract(chosen.split, last, memory - result, sweep, out);
  const auto length = static_cast<size_t>(chosen.split - first);
  out.sweeps.push_back({.first = first,
                        .last = chosen.split - 1,
                        .kept = std::vector<int>(length, ChainSweep::kNothing)});
  extract(first, chosen.split - 1, memory, out.sweeps.size() - 1, out);
}

}  // namespace dltrain

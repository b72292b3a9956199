#include "compile/schedule_times.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"

namespace dltrain {
namespace {

class Clock {
 public:
  explicit Clock(std::span<const StageTimes> stages)
      : stages_(stages), begins_(stages.size()), free_(stages.size(), 0), ends_(stages.size()) {}

  std::vector<std::vector<double>> run() {
    bool moved = true;
    while (std::exchange(moved, false)) {
      for (size_t s = 0; s < stages_.size(); ++s) {
        while (advance(s)) moved = true;
      }
    }
    for (size_t s = 0; s < stages_.size(); ++s) {
      check_internal(begins_[s].size() == stages_[s].seconds.size(),
                     "stage {} waits for ever in segment {}", s, begins_[s].size());
    }
    return std::move(begins_);
  }

 private:
  // Runs the next segment of a stage if it can begin.
  bool advance(size_t s) {
    const size_t next = begins_[s].size();
    if (next == stages_[s].seconds.size()) return false;
    const ScheduledSegment& segment = stages_[s].schedule[next];
    const std::optional<double> ready = ready_at(s, segment);
    if (!ready) return false;
    const double begin = std::max(free_[s], *ready);
    begins_[s].push_back(begin);
    free_[s] = begin + stages_[s].seconds[next];
    ends_[s][{segment.segment, segment.micro_batch}] = free_[s];
    return true;
  }

  // The time from which the values are there that a segment reads; nothing: not known yet.
  std::optional<double> ready_at(size_t s, const ScheduledSegment& segment) const {
    if (segment.segment == Phase::update) {
      double ready = 0;
      for (size_t other = 0; other < stages_.size(); ++other) {
        const auto last = ends_[other].find({Phase::backward, segment.micro_batch});
        if (last == ends_[other].end()) return {};
        ready = std::max(ready, last->second);
      }
      return ready;
    }
    const bool forward = segment.segment == Phase::forward;
    if (s == (forward ? 0 : stages_.size() - 1)) return 0;
    const auto& neighbour = ends_[forward ? s - 1 : s + 1];
    const auto end = neighbour.find({segment.segment, segment.micro_batch});
    if (end == neighbour.end()) return {};
    return end->second;
  }

  std::span<const StageTimes> stages_;
  std::vector<std::vector<double>> begins_;
  std::vector<double> free_;  // the end of each stage's last segment
  std::vector<std::map<std::pair<Phase, int64_t>, double>> ends_;
};

}  // namespace

std::vector<std::vector<double>> begin_times(std::span<const StageTimes> stages) {
  return Clock(stages).run();
}

double step_seconds(std::span<const StageTimes> stages) {
  const auto begins = begin_times(stages);
  double end = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (!begins[s].empty()) end = std::max(end, begins[s].back() + stages[s].seconds.back());
  }
  return end;
}

}  // namespace dltrain

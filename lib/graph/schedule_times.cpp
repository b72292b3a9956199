#include "graph/schedule_times.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace dltrain {
namespace {

class Clock {
 public:
  explicit Clock(std::span<const StageTimes> ranks)
      : ranks_(ranks), begins_(ranks.size()), free_(ranks.size(), 0) {
    size_t chunks = 1;
    for (const StageTimes& rank : ranks) {
      for (const ScheduledSegment& segment : rank.schedule) {
        chunks = std::max(chunks, static_cast<size_t>(segment.chunk) + 1);
        micro_batches_ = std::max(micro_batches_, static_cast<size_t>(segment.micro_batch) + 1);
      }
    }
    stages_ = chunks * ranks.size();
    ends_.assign(kSegments * stages_ * micro_batches_, -1);
  }

  std::vector<std::vector<double>> run() {
    bool moved = true;
    while (std::exchange(moved, false)) {
      for (size_t r = 0; r < ranks_.size(); ++r) {
        while (advance(r)) moved = true;
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      check_internal(begins_[r].size() == ranks_[r].seconds.size(),
                     "rank {} of a pipeline waits for ever in segment {}", r, begins_[r].size());
    }
    return std::move(begins_);
  }

 private:
  static constexpr auto kSegments = static_cast<size_t>(Phase::update);  // of a micro-batch

  // The end of a segment of a micro-batch; negative: not known yet.
  double& end_of(Phase phase, size_t stage, int64_t micro_batch) {
    const size_t row = static_cast<size_t>(phase) * stages_ + stage;
    return ends_[row * micro_batches_ + static_cast<size_t>(micro_batch)];
  }

  // Runs the next segment of a rank if it can begin.
  bool advance(size_t r) {
    const size_t next = begins_[r].size();
    if (next == ranks_[r].seconds.size()) return false;
    const ScheduledSegment& segment = ranks_[r].schedule[next];
    const double ready = ready_at(r, segment);
    if (ready < 0) return false;
    const double begin = std::max(free_[r], ready);
    begins_[r].push_back(begin);
    free_[r] = begin + ranks_[r].seconds[next];
    if (segment.segment != Phase::update) {
      end_of(segment.segment, stage_of(r, segment), segment.micro_batch) = free_[r];
    }
    return true;
  }

  size_t stage_of(size_t r, const ScheduledSegment& segment) const {
    return static_cast<size_t>(segment.chunk) * ranks_.size() + r;
  }

  // The time from which the values are there that a segment reads; negative: not known yet.
  double ready_at(size_t r, const ScheduledSegment& segment) {
    if (segment.segment == Phase::update) {
      double ready = 0;
      for (size_t s = 0; s < ranks_.size(); ++s) {
        const ScheduledSegment& before = *(ranks_[s].schedule.end() - 2);
        const double last = end_of(before.segment, stage_of(s, before), before.micro_batch);
        if (last < 0) return last;
        ready = std::max(ready, last);
      }
      return ready;
    }
    const bool forward = segment.segment == Phase::forward;
    const size_t stage = stage_of(r, segment);
    if (segment.segment == Phase::weights)
      return end_of(Phase::backward, stage, segment.micro_batch);
    if (stage == (forward ? 0 : stages_ - 1)) return 0;
    const double end =
        end_of(segment.segment, forward ? stage - 1 : stage + 1, segment.micro_batch);
    return end < 0 || ranks_[r].delays.empty() ? end : end + ranks_[r].delays[begins_[r].size()];
  }

  std::span<const StageTimes> ranks_;
  std::vector<std::vector<double>> begins_;
  std::vector<double> free_;  // the end of each rank's last segment
  size_t stages_ = 1, micro_batches_ = 1;
  std::vector<double> ends_;
};

}  // namespace

std::vector<std::vector<double>> begin_times(std::span<const StageTimes> ranks) {
  return Clock(ranks).run();
}

double step_seconds(std::span<const StageTimes> ranks) {
  const auto begins = begin_times(ranks);
  double end = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!begins[r].empty()) end = std::max(end, begins[r].back() + ranks[r].seconds.back());
  }
  return end;
}

}  // namespace dltrain

#include "graph/schedule.h"

#include <algorithm>

#include "base/error.h"

namespace dltrain {

MicroStep micro_step_of(int64_t index, int64_t count) {
  if (count == 1) return MicroStep::only;
  if (index == 0) return MicroStep::first;
  return index + 1 == count ? MicroStep::last : MicroStep::middle;
}

StepSchedule step_schedule(int64_t micro_batches, int64_t in_flight) {
  check_internal(micro_batches > 0 && in_flight > 0, "{} micro-batches, {} at a time",
                 micro_batches, in_flight);
  StepSchedule out;
  const auto add = [&](Phase segment, int64_t micro_batch) {
    out.push_back({segment, static_cast<size_t>(micro_batch % in_flight), micro_batch,
                   micro_step_of(micro_batch, micro_batches)});
  };
  int64_t done = 0;
  for (int64_t i = 0; i < micro_batches; ++i) {
    if (i - done == in_flight) add(Phase::backward, done++);
    add(Phase::forward, i);
  }
  while (done < micro_batches) add(Phase::backward, done++);
  for (size_t i = 0; i + 1 < out.size(); ++i) {
    if (out[i].segment != Phase::backward || out[i + 1].segment != Phase::forward) continue;
    out[i].next_frame = static_cast<int64_t>(out[i + 1].frame);
    out[i].next_variant = out[i + 1].variant;
  }
  // The frame of the last backward waits for the reductions that it has started.
  out.push_back({Phase::update, out.back().frame, out.back().micro_batch, MicroStep::only});
  return out;
}

size_t frames_of(const StepSchedule& schedule) {
  size_t most = 0;
  for (const ScheduledSegment& entry : schedule) most = std::max(most, entry.frame);
  return most + 1;
}

}  // namespace dltrain

// A StepSchedule is the order in which a step runs the segments of its micro-batches.
//
// Each micro-batch runs forward and backward in the same frame (graph/frame.h), so as many frames
// are needed as micro-batches are between the two at a time. The update comes last.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

// The variant of a segment: the first micro-batch of a step overwrites sums (gradients, statistics,
// metrics), later ones add to them; collectives over sums run in the last or only one.
enum class MicroStep : uint8_t { first, middle, last, only };
// The variant of micro-batch `index` out of `count`.
MicroStep micro_step_of(int64_t index, int64_t count);

struct ScheduledSegment {
  Phase segment = Phase::forward;
  size_t frame = 0;
  int64_t micro_batch = 0;  // of the step; of the update: the last one
  MicroStep variant = MicroStep::only;
  // The frame and variant of the forward that follows a backward; −1: none follows.
  int64_t next_frame = -1;
  MicroStep next_variant = MicroStep::only;
};
using StepSchedule = std::vector<ScheduledSegment>;

// A step of `micro_batches`, of which at most `in_flight` are between forward and backward. Both
// segments run in the order of the micro-batches, so sums do not depend on `in_flight`:
//
//   1                  forward and backward of each micro-batch in turn: accumulation
//   micro_batches      all forwards, then all backwards (GPipe, Huang et al. 2019)
//   stages − own index one forward, one backward (1F1B, Narayanan et al. 2019)
StepSchedule step_schedule(int64_t micro_batches, int64_t in_flight = 1);

// The number of frames that a schedule uses.
size_t frames_of(const StepSchedule& schedule);

}  // namespace dltrain

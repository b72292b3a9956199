// A StepSchedule is the order in which a step runs the segments of its micro-batches.
//
// Each micro-batch runs forward and backward in the same frame (graph/frame.h), so as many frames
// are needed as micro-batches are between the two at a time. The update comes last.
#pragma once

#include <cstdint>
#include <optional>
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
  int chunk = 0;  // of the forwards and backwards of a rank with several stages of a pipeline
  // Later segments of the schedule whose messages are received before this one begins, and before
  // it sends its own; earlier forwards whose messages have been sent before this one begins.
  std::vector<size_t> first = {}, before_sends = {}, sent = {};
};
using StepSchedule = std::vector<ScheduledSegment>;

// A step of `micro_batches`, of which at most `in_flight` are between forward and backward. Both
// segments run in the order of the micro-batches, so sums do not depend on `in_flight`:
//
//   1                  forward and backward of each micro-batch in turn: accumulation
//   micro_batches      all forwards, then all backwards (GPipe, Huang et al. 2019)
//   stages − own index one forward, one backward (1F1B, Narayanan et al. 2019)
//
// The forward that follows a backward is received before the gradients of that are sent, where
// messages block (Executor::run).
//
// With `weights_lag` the segment `weights` of a micro-batch follows the backward of the one that is
// so many later. In a pipeline of 1F1B with the index of the stage as its lag, stages send their
// gradients earlier and compute weights while they would wait (ZB-H1, Qi et al. 2023). A
// micro-batch needs its frame until then; one more is for the forward that is received early.
StepSchedule step_schedule(int64_t micro_batches, int64_t in_flight = 1,
                           std::optional<int64_t> weights_lag = {});

// The schedules of the ranks along a pipeline with `chunks` > 1 stages each: chunk c of rank r is
// stage c · ranks + r (interleaved 1F1B, Narayanan et al. 2021, section 2.2). Each chunk runs both
// segments in the order of the micro-batches. They take turns in groups of at least `ranks`
// micro-batches (all, if there are fewer), of which later ones may have one less.
//
// Messages may block: each rank has its messages in one order of all messages, that of their
// senders' ends if a backward takes as long as two forwards. So some are received early.
std::vector<StepSchedule> interleaved_schedules(int64_t micro_batches, int ranks, int chunks);

// The numbers of frames and chunks that a schedule uses.
size_t frames_of(const StepSchedule& schedule);
int chunks_of(const StepSchedule& schedule);

// The times of a schedule of several chunks at which frames use memory, by its piece and the frame.
struct FrameLife {
  size_t first = 0, last = 0;  // indices of the schedule
};
using FrameLives = std::vector<std::vector<std::vector<FrameLife>>>;
FrameLives frame_lives(const StepSchedule& schedule);

// The first piece is for what outlives the segments of a chunk. The others are those of the chunks:
// for what lives from forward to backward, what only the message of a forward reads, and what a
// backward receives.
enum class FramePiece : uint8_t { kept, sent, received };
constexpr int piece_of(int chunk, FramePiece piece) {
  return 1 + 3 * chunk + static_cast<int>(piece);
}

}  // namespace dltrain

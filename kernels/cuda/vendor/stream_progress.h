// Progress of a stream through the pieces of work queued on it, available without waiting: an event
// before and after each piece.
//
// Threads: begin() and end() are for the queueing thread, progress() for any.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "cuda/vendor/check.h"
#include "device/collective_backend.h"

namespace dltrain {

class StreamProgress {
 public:
  StreamProgress();

  // Surround the queueing of a piece; not nested. New events are created only when more pieces are
  // pending than before.
  void begin(cudaStream_t stream);
  void end(cudaStream_t stream);
  // Counts pieces after end(). There is no progress after a device failure.
  DeviceProgress progress();

 private:
  struct ProgressMark {
    EventHandle begun, done;
  };
  // Require the mutex.
  bool is_full() const { return queued_ - done_ >= marks_.size(); }
  void advance();
  void grow();
  ProgressMark& mark(uint64_t number) { return marks_[number % marks_.size()]; }

  // Protects the members below, except the events of the piece being queued, which only its thread
  // uses: recording may take long, and progress() must not wait for it.
  std::mutex mutex_;
  std::vector<ProgressMark> marks_;  // that of piece n at n % size, from done + 1 on
  uint64_t queued_ = 0, done_ = 0;
};

}  // namespace dltrain

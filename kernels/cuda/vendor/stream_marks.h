// How far a stream is with pieces of work that were queued on it, asked for without waiting: an
// event before and behind each.
//
// Threads: begin() and end() by the one that queues, progress() by any.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "cuda/vendor/check.h"
#include "device/carrier.h"

namespace dltrain {

class StreamMarks {
 public:
  StreamMarks();

  // Around what is queued; one at a time. Events are made where more is under way than ever before.
  void begin(cudaStream_t stream);
  void end(cudaStream_t stream);
  // Of the pieces that have ended being queued. A device that has failed goes no further.
  CarrierProgress progress();

 private:
  struct Mark {
    EventHandle begun, done;
  };
  // Under the mutex.
  bool is_full() const { return queued_ - done_ >= marks_.size(); }
  void advance();
  void grow();
  Mark& mark(uint64_t number) { return marks_[number % marks_.size()]; }

  // Of what follows, but for the events of the piece being queued, which nobody else looks at: a
  // call that records may take long, and progress() waits for none.
  std::mutex mutex_;
  std::vector<Mark> marks_;  // of piece n at n % size, from done + 1 on
  uint64_t queued_ = 0, done_ = 0;
};

}  // namespace dltrain

// A ring of slots that worker threads fill ahead of one consumer, in sequence.
//
// Threads: construct, next() and destroy from one thread. Fill functions run on the workers, at
// most one at a time for each worker, never two for one slot. Nothing is allocated after
// construction.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dltrain {

struct PrefetchOptions {
  // 0: the consumer fills the slot itself when it asks for it.
  int workers = 1;
  int slots = 4;  // at least held + 1
  // How many of the newest results stay valid: with 2, what next() gave is overwritten only after
  // it was called twice more (for copies to a device that are still under way).
  int held = 1;
  int64_t first = 0;  // sequence numbers [first, last)
  int64_t last = INT64_MAX;
};

class Prefetcher {
 public:
  // Makes the content of `slot` that of sequence number `sequence`. May throw: next() passes it on.
  using Fill = std::function<void(int worker, int64_t sequence, int slot)>;

  Prefetcher(const PrefetchOptions& options, Fill fill);
  // Stops the workers after the slots that they are filling.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The slot of the next sequence number; waits for it. -1 after the last. Throws what its fill
  // function threw, then and on every later call.
  int next();

  // Sequence number that next() will return.
  int64_t sequence() const { return next_; }
  // Seconds spent waiting in next() since construction.
  double wait_seconds() const { return wait_seconds_; }

 private:
  void work(int worker);
  int slot_of(int64_t sequence) const;

  PrefetchOptions options_;
  Fill fill_;
  int64_t next_;
  double wait_seconds_ = 0;

  std::mutex mutex_;
  std::condition_variable filled_, freed_;
  bool stop_ = false;
  int64_t released_;            // sequence numbers below may be overwritten
  std::vector<int64_t> ready_;  // by slot: the sequence number that it holds, -1 for none
  std::exception_ptr error_;
  int64_t error_sequence_ = INT64_MAX;  // the lowest that failed
  std::vector<std::thread> threads_;
};

}  // namespace dltrain

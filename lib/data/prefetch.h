// A ring of slots that worker threads fill ahead of one consumer, in sequence. The workers share
// each slot: worker w of W makes the w-th part of every result, so that the first results come as
// early as they can and no more slots are needed than with one worker.
//
// Threads: construct, next() and destroy from one thread. Fill functions run on the workers, at
// most one at a time for each worker; those for one slot run side by side and must not touch the
// same memory. Nothing is allocated after construction.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dltrain {

// Who wants to know when batches are filled: profilers. Called from the thread that fills, which
// may be any of several at a time.
class FillObserver {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~FillObserver() = default;
  // `sequence`: of the batch. Must be quick.
  virtual void filled(int worker, int64_t sequence, Time begin, Time end) = 0;
};

struct PrefetchOptions {
  // 0: the consumer fills the slot itself when it asks for it.
  int workers = 1;
  int slots = 4;  // at least held + 1
  // How many of the newest results stay valid: with 2, what next() gave is overwritten only after
  // it was called twice more (for copies to a device that are still under way).
  int held = 1;
  int64_t first = 0;  // sequence numbers [first, last)
  int64_t last = INT64_MAX;
  FillObserver* observer = nullptr;  // outlives the prefetcher
};

class Prefetcher {
 public:
  // Makes part `worker` of max(workers, 1) of the content of `slot` that of sequence number
  // `sequence`. May throw: next() passes it on.
  using Fill = std::function<void(int worker, int64_t sequence, int slot)>;

  Prefetcher(const PrefetchOptions& options, Fill fill);
  // Stops the workers after the slots that they are filling.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The slot of the next sequence number; waits for it. -1 after the last. Throws what its fill
  // function threw, then and on every later call.
  int next();

  // Seconds spent waiting in next() since construction.
  double wait_seconds() const { return wait_seconds_; }

 private:
  void work(int worker);
  void fill(int worker, int64_t sequence, int slot);
  int slot_of(int64_t sequence) const;
  void release(int64_t before);

  PrefetchOptions options_;
  Fill fill_;
  int64_t next_;
  double wait_seconds_ = 0;

  std::mutex mutex_;
  std::condition_variable filled_, freed_;
  bool stop_ = false;
  int64_t released_;        // sequence numbers below may be overwritten
  std::vector<int> parts_;  // by slot: how many are made of the sequence number it is to hold
  std::exception_ptr error_;
  int64_t error_sequence_ = INT64_MAX;  // the lowest that failed, and of its parts the lowest
  int error_worker_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace dltrain

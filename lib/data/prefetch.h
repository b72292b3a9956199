// A ring of slots that worker threads fill ahead of one consumer, in sequence. The workers share
// each slot: worker w of W computes the w-th part of every result, so that the first results are
// ready early and no additional slots are needed.
//
// Threads: construct, next() and destroy on one thread. Fill functions run on the workers, at most
// one at a time per worker; those for one slot run concurrently and must not write the same memory.
// Nothing is allocated after construction.
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

// Observes when batches are filled, for profilers. Called concurrently by the filling threads.
class FillObserver {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~FillObserver() = default;
  // `sequence` is that of the batch. Must be fast.
  virtual void filled(int worker, int64_t sequence, Time begin, Time end) = 0;
};

struct PrefetchOptions {
  // 0: next() fills the slot itself.
  int workers = 1;
  int slots = 4;  // at least held + 1
  // Number of newest results that stay valid: with 2, a result is overwritten after two more calls
  // of next() (for asynchronous copies to a device).
  int held = 1;
  int64_t first = 0;  // sequence numbers [first, last)
  int64_t last = INT64_MAX;
  FillObserver* observer = nullptr;  // outlives the prefetcher
};

class Prefetcher {
 public:
  // Fills part `worker` of max(workers, 1) of `slot` for a sequence number. next() rethrows its
  // exceptions.
  using Fill = std::function<void(int worker, int64_t sequence, int slot)>;

  Prefetcher(const PrefetchOptions& options, Fill fill);
  // Stops the workers after their current slots.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Waits for the next sequence number and returns its slot, or -1 after the last. Throws the
  // exception of its fill function, also on later calls.
  int next();

  // Seconds spent waiting in next() since construction.
  double wait_seconds() const { return wait_seconds_; }

 private:
  void stop();
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
  std::vector<int> parts_;  // by slot: number of finished parts of its next sequence number
  std::exception_ptr error_;
  int64_t error_sequence_ = INT64_MAX;  // the lowest that failed, with its lowest failed part
  int error_worker_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace dltrain

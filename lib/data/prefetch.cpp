#include "data/prefetch.h"

#include <chrono>

#include "base/error.h"
#include "base/shortened_files.h"

namespace dltrain {

Prefetcher::Prefetcher(const PrefetchOptions& options, Fill fill)
    : options_(options), fill_(std::move(fill)), next_(options.first), released_(options.first) {
  check_internal(options_.held >= 1 && options_.slots > options_.held && options_.workers >= 0,
                 "prefetching with {} slots, {} held", options_.slots, options_.held);
  parts_.assign(static_cast<size_t>(options_.slots), 0);
  try {
    for (int worker = 0; worker < options_.workers; ++worker) {
      threads_.emplace_back([this, worker] { work(worker); });
    }
  } catch (const std::system_error& error) {
    stop();
    fail(ExitCode::memory, "cannot start a data thread: {}", error.what());
  }
}

Prefetcher::~Prefetcher() {
  stop();
}

void Prefetcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  freed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

int Prefetcher::slot_of(int64_t sequence) const {
  return static_cast<int>((sequence - options_.first) % options_.slots);
}

void Prefetcher::work(int worker) {
  for (int64_t sequence = options_.first; sequence < options_.last; ++sequence) {
    {
      std::unique_lock lock(mutex_);
      freed_.wait(lock, [&] { return stop_ || sequence < released_ + options_.slots; });
      if (stop_) return;
    }
    const int slot = slot_of(sequence);
    std::exception_ptr error;
    try {
      fill(worker, sequence, slot);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (error &&
          (sequence < error_sequence_ || (sequence == error_sequence_ && worker < error_worker_))) {
        error_ = error;
        error_sequence_ = sequence;
        error_worker_ = worker;
      }
      // Counts failed parts too: next() waits for the others, so that it always reports the same
      // error.
      ++parts_[static_cast<size_t>(slot)];
    }
    filled_.notify_one();
    if (error) return;
  }
}

void Prefetcher::fill(int worker, int64_t sequence, int slot) {
  const auto begin = FillObserver::Time::clock::now();
  try {
    fill_(worker, sequence, slot);
  } catch (const Error&) {
    check_mapped_files();  // a truncated file may be the cause
    throw;
  }
  check_mapped_files();
  if (options_.observer == nullptr) return;
  options_.observer->filled(worker, sequence, begin, FillObserver::Time::clock::now());
}

// Allows the workers to overwrite the slots before sequence number `before`.
void Prefetcher::release(int64_t before) {
  for (; released_ < before; ++released_) parts_[static_cast<size_t>(slot_of(released_))] = 0;
  freed_.notify_all();
}

int Prefetcher::next() {
  using Clock = std::chrono::steady_clock;
  if (next_ >= options_.last) return -1;
  const int slot = slot_of(next_);
  const Clock::time_point begin = Clock::now();
  if (options_.workers == 0) {
    fill(0, next_, slot);
  } else {
    std::unique_lock lock(mutex_);
    release(next_ - options_.held + 1);
    filled_.wait(lock, [&] {
      return parts_[static_cast<size_t>(slot)] == options_.workers || next_ > error_sequence_;
    });
    if (next_ >= error_sequence_) std::rethrow_exception(error_);
  }
  wait_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
  ++next_;
  return slot;
}

}  // namespace dltrain

#include "data/prefetch.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace dltrain {

Prefetcher::Prefetcher(const PrefetchOptions& options, Fill fill)
    : options_(options), fill_(std::move(fill)), next_(options.first), released_(options.first) {
  check_internal(options_.held >= 1 && options_.slots > options_.held && options_.workers >= 0,
                 "prefetching with {} slots, {} held", options_.slots, options_.held);
  ready_.assign(static_cast<size_t>(options_.slots), -1);
  try {
    for (int worker = 0; worker < options_.workers; ++worker) {
      threads_.emplace_back([this, worker] { work(worker); });
    }
  } catch (const std::system_error& error) {
    stop_ = true;
    freed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    fail(ExitCode::memory, "cannot start a data thread: {}", error.what());
  }
}

Prefetcher::~Prefetcher() {
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
  for (int64_t sequence = options_.first + worker; sequence < options_.last;
       sequence += options_.workers) {
    {
      std::unique_lock lock(mutex_);
      freed_.wait(lock, [&] { return stop_ || sequence < released_ + options_.slots; });
      if (stop_) return;
    }
    const int slot = slot_of(sequence);
    std::exception_ptr error;
    try {
      fill_(worker, sequence, slot);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (error && sequence < error_sequence_) {
        error_ = error;
        error_sequence_ = sequence;
      }
      if (!error) ready_[static_cast<size_t>(slot)] = sequence;
    }
    filled_.notify_one();
    if (error) return;
  }
}

int Prefetcher::next() {
  using Clock = std::chrono::steady_clock;
  if (next_ >= options_.last) return -1;
  const int slot = slot_of(next_);
  const Clock::time_point begin = Clock::now();
  if (options_.workers == 0) {
    fill_(0, next_, slot);
  } else {
    std::unique_lock lock(mutex_);
    released_ = std::max(options_.first, next_ - options_.held + 1);
    freed_.notify_all();
    filled_.wait(lock, [&] {
      return ready_[static_cast<size_t>(slot)] == next_ || next_ >= error_sequence_;
    });
    if (ready_[static_cast<size_t>(slot)] != next_) std::rethrow_exception(error_);
  }
  wait_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
  ++next_;
  return slot;
}

}  // namespace dltrain

// Ranks as threads of one process: short runs under every layout, without processes or sockets.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/reduce.h"
#include "device/collectives.h"

namespace dltrain {

// What the threads meet at. A rank that fails breaks it, so that the others fail too.
class MeetingPoint {
 public:
  explicit MeetingPoint(int size) : inputs(static_cast<size_t>(size)), size_(size) {}

  void meet() {
    std::unique_lock lock(mutex_);
    const uint64_t round = round_;
    if (++waiting_ == size_) {
      waiting_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || broken_; });
    if (broken_) fail(ExitCode::rank, "another rank has failed");
  }
  void break_up() {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    changed_.notify_all();
    for (auto& [ranks, part] : parts_) part->break_up();
  }
  int size() const { return size_; }

  // Where some of the threads meet; the same for all who name the same ranks.
  MeetingPoint& of(std::span<const int> ranks) {
    const std::lock_guard lock(mutex_);
    auto& part = parts_[{ranks.begin(), ranks.end()}];
    if (!part) part = std::make_unique<MeetingPoint>(static_cast<int>(ranks.size()));
    if (broken_) part->break_up();
    return *part;
  }

  std::vector<const void*> inputs;  // by rank

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int size_, waiting_ = 0;
  uint64_t round_ = 0;
  bool broken_ = false;
  std::map<std::vector<int>, std::unique_ptr<MeetingPoint>> parts_;
};

// Every operation is complete when it returns. Sums are those of comm/reduce.h, as Gloo's are.
class ThreadCollectives final : public Collectives {
 public:
  ThreadCollectives(MeetingPoint& point, int rank)
      : point_(point), rank_(rank), ranks_(static_cast<size_t>(point.size())), sent_(&own_sent_) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }

  int rank() const override { return rank_; }
  int size() const override { return point_.size(); }

  void wait(Ticket, Stream&) override {}
  void barrier() override { point_.meet(); }
  std::unique_ptr<Collectives> split(std::span<const int> ranks) override {
    const auto own = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    auto part = std::make_unique<ThreadCollectives>(point_.of(ranks), static_cast<int>(own));
    part->ranks_.assign(ranks.begin(), ranks.end());
    part->sent_ = sent_;
    return part;
  }

  // Bytes that this rank sent to each rank of the whole group, in its parts too.
  std::map<int, size_t>& sent() { return *sent_; }

 private:
  Ticket queue(const CollectiveCall& c, Stream&) override {
    const auto rank = static_cast<size_t>(rank_), ranks = point_.inputs.size();
    const auto part_of = [&](size_t r, size_t part) {
      return static_cast<const std::byte*>(point_.inputs[r]) + part * c.bytes();
    };
    switch (c.kind) {
      case CollectiveKind::all_reduce:
        count_sent(c.bytes() * 2 / ranks);
        return swap(c, c.count,
                    [&] { reduce_parts(point_.inputs, result_.data(), c.count, c.dtype, c.op); });
      case CollectiveKind::reduce_scatter:
        count_sent(c.bytes());
        return swap(c, c.count, [&] {
          std::vector<const void*> parts;
          for (size_t r = 0; r < ranks; ++r) parts.push_back(part_of(r, rank));
          reduce_parts(parts, result_.data(), c.count, c.dtype, c.op);
        });
      case CollectiveKind::all_gather:
        count_sent(c.bytes());
        return swap(c, c.count * ranks, [&] {
          for (size_t r = 0; r < ranks; ++r) {
            std::memcpy(result_.data() + r * c.bytes(), part_of(r, 0), c.bytes());
          }
        });
      case CollectiveKind::broadcast:
        return swap(c, c.count, [&] {
          std::memcpy(result_.data(), part_of(static_cast<size_t>(c.root), 0), c.bytes());
        });
      default:
        fail(ExitCode::internal, "no step has a {}", describe(c));
    }
  }
  void count_sent(size_t bytes_to_each) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank_) (*sent_)[ranks_[static_cast<size_t>(peer)]] += bytes_to_each;
    }
  }

  // Reads what all ranks have laid out, then writes, since outputs may lie among inputs.
  template <typename Work>
  Ticket swap(const CollectiveCall& c, size_t results, const Work& work) {
    point_.inputs[static_cast<size_t>(rank_)] = c.input != nullptr ? c.input : c.output;
    point_.meet();
    result_.resize(results * dtype_size(c.dtype));
    work();
    point_.meet();
    std::memcpy(c.output, result_.data(), result_.size());
    return ++tickets_;
  }

  MeetingPoint& point_;
  int rank_;
  std::vector<int> ranks_;  // what the members are called in the whole group
  std::map<int, size_t> own_sent_;
  std::map<int, size_t>* sent_;
  Ticket tickets_ = 0;
  std::vector<std::byte> result_;
};

// Calls body(collectives of the rank) as so many ranks at once; throws what the first rank threw.
inline void run_rank_threads(int size, const std::function<void(ThreadCollectives&)>& body) {
  MeetingPoint point(size);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCollectives collectives(point, rank);
      try {
        body(collectives);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
        point.break_up();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace dltrain

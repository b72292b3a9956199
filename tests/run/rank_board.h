// Where ranks that are threads of one process lay out what they send each other, and meet.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/error.h"
#include "device/collectives.h"

namespace dltrain {

// The exchange of one group. If a rank fails, the others fail too: Error(rank).
class RankBoard {
 public:
  using Data = std::shared_ptr<const std::vector<std::byte>>;

  explicit RankBoard(int size) : size_(size) {}
  int size() const { return size_; }

  void meet() {
    std::unique_lock lock(mutex_);
    const uint64_t round = round_;
    if (++waiting_ == size_) {
      waiting_ = 0;
      ++round_;
      changed_.notify_all();
    }
    wait_until(lock, [&] { return round_ != round; });
  }

  // Operation `number` of the group, as `rank` issues it with this data. Throws Error(internal)
  // where the ranks issue different ones.
  void lay_out(uint64_t number, int rank, const CollectiveCall& call, Data data) {
    const std::lock_guard lock(mutex_);
    const auto [at, first] = operations_.try_emplace(number);
    Operation& operation = at->second;
    if (first) {
      operation.call = call;
      operation.data.resize(static_cast<size_t>(size_));
    }
    check_internal(fits(operation.call, call), "as number {} rank {} issues {}, another {}", number,
                   rank, describe(call), describe(operation.call));
    operation.data[static_cast<size_t>(rank)] = std::move(data);
    if (++operation.laid_out == size_) changed_.notify_all();
  }

  // Waits for the data of all ranks and returns it by rank. Every rank calls it once.
  std::vector<Data> take(uint64_t number) {
    std::unique_lock lock(mutex_);
    wait_until(lock, [&] { return operations_[number].laid_out == size_; });
    Operation& operation = operations_[number];
    const std::vector<Data> out = operation.data;
    if (++operation.taken == size_) operations_.erase(number);
    return out;
  }

  // Returns the board of so many of the ranks: the same one for all that give the same name.
  RankBoard& of(std::span<const int> name, int size) {
    const std::lock_guard lock(mutex_);
    auto& part = parts_[{name.begin(), name.end()}];
    if (!part) part = std::make_unique<RankBoard>(size);
    if (broken_) part->break_up();
    return *part;
  }

  void break_up() {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    changed_.notify_all();
    for (auto& [ranks, part] : parts_) part->break_up();
  }

 private:
  struct Operation {
    CollectiveCall call;
    std::vector<Data> data;
    int laid_out = 0, taken = 0;
  };

  static bool fits(const CollectiveCall& a, const CollectiveCall& b) {
    return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
           a.count == b.count;
  }

  template <typename Condition>
  void wait_until(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    changed_.wait(lock, [&] { return broken_ || condition(); });
    if (broken_) fail(ExitCode::rank, "another rank has failed");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const int size_;
  int waiting_ = 0;
  uint64_t round_ = 0;
  bool broken_ = false;
  std::map<uint64_t, Operation> operations_;
  std::map<std::vector<int>, std::unique_ptr<RankBoard>> parts_;
};

}  // namespace dltrain

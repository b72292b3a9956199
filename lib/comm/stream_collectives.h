// Collectives over a GPU's memory, in the order of its streams: the host queues an operation and
// goes on. What carries it (device/carrier.h) is joined later, when all ranks are known to be
// ready; until then a plan can be prepared with the group, but not run.
//
// All operations run in their order on one stream, which the parts of the group (split) share: two
// groups that were at work at once on a GPU might wait for each other for ever. One begins when
// what was queued on `after` before it is done, so it overlaps with later work there; wait() makes
// `before` wait and returns at once.
//
// Failures show in check(), in the next operation and in barrier(): throws Error(rank), with the
// reason that the watch knows (observer.h), which is also told how far the device is
// (device_follower.h). Nothing is allocated in operations of sizes seen before. Threads: one at a
// time, but for abandon().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/call_numbers.h"
#include "comm/device_follower.h"
#include "comm/observer.h"
#include "device/carrier.h"
#include "device/collectives.h"
#include "device/device.h"

namespace dltrain {

class StreamCollectives final : public Collectives {
 public:
  StreamCollectives(Device& device, int rank, int size);
  // Waits for the operations under way, so all ranks must have issued the same; else abandon()
  // first.
  ~StreamCollectives() override;

  // `host`: the group of the same ranks over host memory, for barriers. `observer` (nullptr: none)
  // knows this group by this number, and its parts by those after it. Both outlive the group. Parts
  // are joined with it, so all ranks must have split alike.
  void join(std::unique_ptr<Carrier> carrier, Collectives& host,
            CollectiveObserver* observer = nullptr, int group_number = 0);
  bool joined() const { return carrier_ != nullptr; }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void wait(Ticket ticket, Stream& before) override;
  void barrier() override;
  // Before the group is joined.
  std::unique_ptr<Collectives> split(std::span<const int> ranks) override;
  // Of the whole group and its parts; so is abandon().
  void check() override;
  void abandon() override;

 private:
  // Marks of the latest operations. An older one is waited for by the mark that took its place:
  // later than needed, but the stream is in order.
  static constexpr size_t kMarks = 64;

  StreamCollectives(StreamCollectives& whole, std::vector<int> ranks, int rank);

  Ticket queue(const CollectiveCall& call, Stream& after) override;
  ObservedOperation observed(const CollectiveCall& call, const CallNumbers& numbers) const;
  void join_as(std::unique_ptr<Carrier> carrier, Collectives& host, int group_number);
  void check_own();

  Device& device_;
  int rank_, size_;
  std::vector<int> ranks_;              // of a part, in the whole
  StreamCollectives* whole_ = nullptr;  // of a part
  std::vector<StreamCollectives*> parts_;
  CollectiveObserver* observer_ = nullptr;
  int group_number_ = 0;
  Collectives* host_ = nullptr;
  std::unique_ptr<Collectives> own_host_;  // of a part
  std::shared_ptr<Stream> stream_;
  std::unique_ptr<Event> ready_;  // what an operation begins after
  std::array<std::unique_ptr<Event>, kMarks> done_;
  std::unique_ptr<Carrier> carrier_;  // after the stream: it may hold memory that work there uses
  std::shared_ptr<DeviceFollower> follower_;  // nullptr: nobody observes
  Ticket issued_ = 0;
  CallCounter counter_;
};

}  // namespace dltrain

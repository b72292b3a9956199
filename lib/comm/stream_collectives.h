// Collectives over a GPU's memory, in stream order: the host queues an operation and continues. The
// backend (device/collective_backend.h) that executes them is joined later, when all ranks are
// known to be ready; until then a program can be made with the group, but not run.
//
// All operations run in order on one stream, which the groups made by split() share, because two
// groups that are active on a GPU at the same time could deadlock. An operation starts after the
// work queued on `after`, so it overlaps with later work there; wait() makes `before` wait and
// returns at once.
//
// Failures are reported by check(), by the next operation and by barrier(): Error(rank) with the
// reason that the watch knows. The watch also follows the progress of the device. Nothing is
// allocated for operations of known sizes. Threads: one at a time, except for abort().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/watch.h"
#include "device/collective_backend.h"
#include "device/collectives.h"
#include "device/device.h"

namespace dltrain {

class StreamCollectives final : public Collectives {
 public:
  StreamCollectives(Device& device, int rank, int size);
  // Waits for the operations in progress. Unless all ranks have issued the same ones, call
  // abort() first.
  ~StreamCollectives() override;

  // `host`: the group of the same ranks over host memory, for barriers. `watch` (may be nullptr)
  // knows this group by `group_number`, and its parts by the following numbers. Both outlive the
  // group. The parts are joined too, so all ranks must have made the same ones.
  void join(std::unique_ptr<CollectiveBackend> backend, Collectives& host,
            RankWatch* watch = nullptr, int group_number = 0);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void wait(Ticket ticket, Stream& before) override;
  // Waits for all ranks, also if this is a part of them.
  void barrier() override;
  // Must be called before join().
  std::unique_ptr<Collectives> split(std::span<const int> ranks) override;
  // check() and abort() apply to the group of all ranks and its parts.
  void check() override;
  void abort() override;

 private:
  // Events of the latest operations. wait() for an older one uses the event that has replaced it:
  // later than necessary, but correct because the stream is in order.
  static constexpr size_t kMarks = 64;

  StreamCollectives(StreamCollectives& whole, std::vector<int> ranks, int rank);

  Ticket queue(const CollectiveCall& call, Stream& after) override;
  void join_as(std::unique_ptr<CollectiveBackend> backend, Collectives& host, RankWatch* watch,
               int group_number);
  void check_own();

  Device& device_;
  int rank_, size_;
  std::vector<int> ranks_;              // the members, as ranks among all
  StreamCollectives* whole_ = nullptr;  // of a part: the group of all ranks
  std::vector<StreamCollectives*> parts_;
  RankWatch* watch_ = nullptr;
  int group_number_ = 0;
  Collectives* host_ = nullptr;
  std::shared_ptr<Stream> stream_;
  std::unique_ptr<Event> ready_;  // an operation starts after it
  std::array<std::unique_ptr<Event>, kMarks> done_;
  std::unique_ptr<CollectiveBackend> backend_;  // after the stream, whose work uses its memory
  Ticket issued_ = 0;
  uint64_t collectives_ = 0;  // issued so far, without messages between two ranks
};

}  // namespace dltrain

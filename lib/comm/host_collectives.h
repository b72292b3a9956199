// Collectives between processes over host memory and TCP.
//
// All ranks of a group construct a HostCollectives with the same size and group name; the
// constructor returns when all have come. Operations run in order on the communication thread of
// the group, or on the thread that waits for them, which is faster for small messages.
//
// Determinism: see comm/collective_algorithms.h. Dtypes: all for moving; f32, f64, bf16, f16, i32
// and i64 for reductions. `after` and `before` are ignored, because work on CPU streams is complete
// when its call returns. Ranks that issue different operations are reported at once; an operation
// never continues with the data of another one.
//
// Memory: CollectiveAlgorithms::scratch_bytes(size) at set-up; nothing is allocated after that.
//
// Threads: operations are issued by one thread; wait() can be called by any. Issuing blocks only
// when kCapacity operations are unfinished.
//
// Call barrier() before the group is destroyed, because that closes the connections. The destructor
// completes the queued operations, except while an exception is being handled: then it closes the
// connections at once, so that the peers do not wait for this rank.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/collective_algorithms.h"
#include "comm/watch.h"
#include "device/collectives.h"

namespace dltrain {

class HostCollectives : public Collectives {
 public:
  static constexpr size_t kCapacity = 1024;

  // The group of all ranks. Throws Error(rank), naming the ranks that did not come. `store`
  // outlives the group.
  HostCollectives(StoreClient& store, const HostGroupOptions& options);
  ~HostCollectives() override;

  int rank() const override { return connections_.rank(); }
  int size() const override { return connections_.size(); }
  void wait(Ticket ticket, Stream& before) override;
  void barrier() override;
  // The new group has its own connections and its own thread.
  std::unique_ptr<Collectives> split(std::span<const int> ranks) override;
  // Makes another group of the same ranks, which the watch does not observe. All ranks call it.
  std::unique_ptr<Collectives> make_unobserved();
  // See PeerConnections. Between operations only.
  PeerConnections::Traffic traffic() const { return connections_.traffic(); }
  void abort() override { connector_->close(); }
  void settle() override;

 protected:
  Ticket queue(const CollectiveCall& call, Stream& after) override;

 private:
  HostCollectives(std::shared_ptr<PeerConnector> connector, std::span<const int> ranks,
                  RankWatch* watch);

  struct Queued {
    CollectiveCall call;
    uint64_t number = 0;  // of the group's collectives so far
  };

  void work();
  void run_next(std::unique_lock<std::mutex>& lock);  // called and returns with the lock held
  void run(const Queued& queued);
  void finish(Ticket ticket);
  void record_failure(const CollectiveCall& call, const std::exception& error);

  std::shared_ptr<PeerConnector> connector_;
  int group_number_;  // 0: the first group of all ranks
  RankWatch* watch_;
  PeerConnections connections_;
  CollectiveAlgorithms algorithms_;
  std::vector<Queued> ring_;  // [ticket % kCapacity]
  uint64_t collectives_ = 0;  // issued so far, without messages between two ranks
  int exceptions_at_start_;

  std::mutex mutex_;  // protects the members below
  std::condition_variable changed_;
  Ticket issued_ = 0;
  Ticket executed_ = 0;
  bool running_ = false;  // a thread runs operation executed_ + 1
  Ticket failed_ = 0;     // the first operation that failed, or 0
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dltrain

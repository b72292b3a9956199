// Collectives over host memory on any Transport: a fixed queue of operations and the thread that
// runs them in turn, or whoever waits for one that is not begun. Public users take comm/gloo.h.
//
// Operations are issued by one thread; wait() may be called by any. Issuing blocks only when
// kCapacity operations are unfinished.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/call_numbers.h"
#include "comm/exchange.h"
#include "comm/observer.h"
#include "comm/transport.h"
#include "device/collectives.h"

namespace dltrain {

class HostCollectives : public Collectives {
 public:
  static constexpr size_t kCapacity = 1024;

  // `observer` (nullptr: none) outlives the group, which it knows by this number.
  explicit HostCollectives(std::unique_ptr<Transport> transport,
                           CollectiveObserver* observer = nullptr, int group_number = 0);
  ~HostCollectives() override;

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  void wait(Ticket ticket, Stream& before) override;
  void barrier() override;
  // With connections and a thread of its own.
  std::unique_ptr<Collectives> split(std::span<const int> ranks) override;
  void abandon() override { transport_->close(); }

 protected:
  Ticket queue(const CollectiveCall& call, Stream& after) override;

 private:
  using Kind = CollectiveKind;
  struct Operation {
    CollectiveCall call = {};
    CallNumbers numbers = {};
    Ticket ticket = 0;
  };

  uint64_t slot_of(const Operation& o) const;
  uint64_t message_slot(int from, int to, size_t bytes, uint64_t number) const;
  void work();
  void run_next(std::unique_lock<std::mutex>& lock);  // holds the lock before and after
  void run(Operation& o);
  void pass(const Operation& o);
  void finish(Ticket ticket);
  void finish_observed(Ticket ticket);
  ObservedOperation observed(const Operation& o) const;
  void record_failure(const Operation& o, const std::exception& error);

  std::unique_ptr<Transport> transport_;
  CollectiveObserver* observer_;
  int group_number_;
  Exchange exchange_;
  std::vector<Operation> ring_;  // ticket % kCapacity
  CallCounter counter_;
  int exceptions_at_start_;
  int groups_ = 0;  // that were split from this one

  std::mutex mutex_;  // of everything below
  std::condition_variable changed_;
  Ticket issued_ = 0;
  Ticket executed_ = 0;
  bool running_ = false;  // some thread runs operation executed_ + 1
  Ticket failed_ = 0;     // the first operation that failed, 0: none
  std::exception_ptr error_;
  bool certain_ = false;  // see CollectiveObserver::explain
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dltrain

// Tells the watch how far a device is with the operations of its groups, which the host only
// queues: a thread asks the carriers every kFollowEvery. So a GPU that stalls is found by time, as
// a host is.
//
// Threads: add() at set-up; queued() by the thread that queues.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/observer.h"
#include "device/carrier.h"

namespace dltrain {

inline constexpr std::chrono::milliseconds kFollowEvery{50};

class DeviceFollower {
 public:
  // Begins at once; the observer outlives it.
  explicit DeviceFollower(CollectiveObserver& observer);
  ~DeviceFollower();
  DeviceFollower(const DeviceFollower&) = delete;
  DeviceFollower& operator=(const DeviceFollower&) = delete;

  // A group that the observer knows by this number; the carrier outlives this object, or remove().
  void add(int group, Carrier& carrier);
  void remove(int group);
  // The next operation that the group's carrier is about to queue. Allocates where more are under
  // way than ever before.
  void queued(int group, const ObservedOperation& operation);

 private:
  struct Group {
    int number = 0;
    Carrier* carrier = nullptr;
    std::vector<ObservedOperation> ring;    // operation n at n % size, from done + 1 on
    uint64_t queued = 0, done = 0, on = 0;  // the observer knows of these
  };
  void work();
  void look_at(Group& group);

  CollectiveObserver& observer_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<Group> groups_;
  bool stopping_ = false;
  std::thread thread_;  // last
};

}  // namespace dltrain

#include "comm/device_follower.h"

#include <algorithm>

#include "base/signals.h"

namespace dltrain {

DeviceFollower::DeviceFollower(CollectiveObserver& observer) : observer_(observer) {
  const BlockSignals block;
  thread_ = std::thread([this] { work(); });
}

DeviceFollower::~DeviceFollower() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DeviceFollower::add(int group, Carrier& carrier) {
  constexpr size_t kFirstRing = 64;
  const std::lock_guard lock(mutex_);
  groups_.push_back(
      {.number = group, .carrier = &carrier, .ring = std::vector<ObservedOperation>(kFirstRing)});
}

void DeviceFollower::remove(int group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [&](const Group& g) { return g.number == group; });
}

void DeviceFollower::queued(int group, const ObservedOperation& operation) {
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(groups_.begin(), groups_.end(),
                               [&](const Group& g) { return g.number == group; });
  if (at == groups_.end()) return;
  if (at->queued - at->done == at->ring.size()) look_at(*at);
  if (at->queued - at->done == at->ring.size()) {
    std::vector<ObservedOperation> larger(2 * at->ring.size());
    for (uint64_t n = at->done + 1; n <= at->queued; ++n) {
      larger[n % larger.size()] = at->ring[n % at->ring.size()];
    }
    at->ring = std::move(larger);
  }
  ++at->queued;
  at->ring[at->queued % at->ring.size()] = operation;
  at->ring[at->queued % at->ring.size()].step = observer_.step();
}

void DeviceFollower::work() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kFollowEvery, [this] { return stopping_; })) {
    for (Group& group : groups_) look_at(group);
  }
}

// Under the mutex.
void DeviceFollower::look_at(Group& group) {
  const CarrierProgress progress = group.carrier->progress();
  const uint64_t done = std::min(progress.done, group.queued);
  while (group.done < done) {
    ++group.done;
    observer_.device_done(group.number, group.ring[group.done % group.ring.size()]);
  }
  const uint64_t on = std::min(progress.begun, group.queued);
  if (on <= group.done || on == group.on) return;
  group.on = on;
  observer_.on_device(group.number, group.ring[on % group.ring.size()]);
}

}  // namespace dltrain

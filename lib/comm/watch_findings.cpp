// The findings of rank 0's watch from the positions of the ranks.
#include <algorithm>
#include <numeric>

#include "comm/watch.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

// The least number of steps in a straggler window, and the least difference that is reported.
constexpr int64_t kStragglerSteps = 10;
constexpr double kStragglerUs = 2000;

std::string seconds(milliseconds time) {
  return fmt::format("{:.1f} s", static_cast<double>(time.count()) / 1000);
}

// " at step 3, in all_reduce 9" or, if the operation has ended, ", after all_reduce 9".
std::string position_text(int64_t step, bool within, const std::string& operation) {
  std::string text = step < 0 ? " before the first step" : fmt::format(" at step {}", step + 1);
  if (!operation.empty()) text += (within ? ", in " : ", after ") + operation;
  return text;
}

std::string device_position_text(const WatchPosition& position) {
  return position_text(position.device_step, position.device.group >= 0, position.device_operation);
}

uint64_t number_at(const std::map<int, uint64_t>& numbers, int group) {
  const auto found = numbers.find(group);
  return found == numbers.end() ? 0 : found->second;
}

// The operation of the group that the device executes; 0: none.
uint64_t number_on_device(const WatchPosition& position, int group) {
  return position.device.group == group ? position.device.number : 0;
}

// Returns true if the rank has not reached the operation that another one waits for, and does not
// wait itself. If the host has issued it already, this holds for the device.
bool is_missing(const WatchPosition& position, const WatchWait& wait, bool of_device) {
  if (number_at(position.issued, wait.group) < wait.number) return !position.waits();
  if (!of_device) return false;
  const uint64_t reached =
      std::max(number_on_device(position, wait.group), number_at(position.done, wait.group));
  return reached < wait.number && position.device.group < 0;
}

}  // namespace

std::string where(const WatchPosition& position) {
  return position_text(position.step, position.host.group >= 0, position.operation);
}

void WatchedRank::note(WatchPosition now) {
  if (position && position->heartbeat == now.heartbeat) return;
  position = std::move(now);
  changed = Clock::now();
}

std::string WatchedRank::silence(int rank, std::chrono::duration<double> timeout) const {
  const auto silent = std::chrono::duration_cast<milliseconds>(Clock::now() - changed);
  if (silent < timeout || (position && position->finished)) return "";
  return fmt::format("{} has sent no heartbeat for {}; it was last seen{}",
                     position ? position->name : fmt::format("rank {}", rank), seconds(silent),
                     where(position.value_or(WatchPosition{})));
}

void RankWatch::find_unresponsive(int rank) {
  const std::string message = peers_[static_cast<size_t>(rank)].silence(rank, options_.timeout);
  if (!message.empty()) declare_failure(rank, message);
}

// Returns the ranks that take part in an operation in which `rank` waits. Called only if the wait
// is long, so that heartbeats need not contain them.
std::vector<int> RankWatch::members_of(int rank, const WatchWait& wait) {
  if (wait.peer >= 0) return {rank, wait.peer};
  if (const auto text = store_.try_get(watch_keys::members(rank, wait.group))) {
    return members_from_text(*text, options_.size);
  }
  std::vector<int> all(peers_.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// If a rank waits too long, the member of the group that does not wait itself hangs. The waits of
// devices are more specific than those of their hosts.
void RankWatch::find_hanging() {
  for (const bool of_device : {true, false}) {
    for (int rank = 0; rank < options_.size; ++rank) {
      if (find_missing(rank, of_device)) return;
    }
  }
  find_hanging_devices();
}

bool RankWatch::find_missing(int waiter, bool of_device) {
  const auto& w = peers_[static_cast<size_t>(waiter)].position;
  if (!w) return false;
  const WatchWait& wait = of_device ? w->device : w->host;
  if (wait.group < 0 || wait.ms < options_.timeout.count()) return false;
  for (const int rank : members_of(waiter, wait)) {
    const auto& other = peers_[static_cast<size_t>(rank)].position;
    if (!other || !is_missing(*other, wait, of_device)) continue;
    const bool device = of_device && number_at(other->issued, wait.group) >= wait.number;
    declare_failure(rank, fmt::format("{}{} hangs{}: {} has waited for it for {} in {}",
                                      device ? "the GPU of " : "", other->name,
                                      device ? device_position_text(*other) : where(*other),
                                      w->name, seconds(milliseconds(wait.ms)),
                                      of_device ? w->device_operation : w->operation));
    return true;
  }
  return false;
}

// No rank is missing, but an operation does not end: on one GPU, or on all of them.
void RankWatch::find_hanging_devices() {
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const auto& position = peers_[rank].position;
    if (!position || position->device.group < 0) continue;
    const WatchWait& wait = position->device;
    if (wait.ms < options_.timeout.count()) continue;
    size_t within = 0, outside = 0;  // members that execute the operation, or have not started it
    for (const int member : members_of(static_cast<int>(rank), wait)) {
      const auto& other = peers_[static_cast<size_t>(member)].position;
      if (other && number_on_device(*other, wait.group) == wait.number) {
        ++within;
      } else if (!other || number_at(other->done, wait.group) < wait.number) {
        ++outside;
      }
    }
    if (outside > 0) continue;
    declare_failure(
        static_cast<int>(rank),
        fmt::format("the GPU of {} hangs{} for {}: {}", position->name,
                    device_position_text(*position), seconds(milliseconds(wait.ms)),
                    within == 1 ? "the other ranks have completed it"
                                : fmt::format("{} GPUs execute it and none completes it; one of "
                                              "them or a link between them stalls",
                                              within)));
    return;
  }
}

void RankWatch::find_stragglers() {
  if (options_.straggler_factor <= 0 || options_.size < 2 || !options_.on_straggler ||
      Clock::now() - window_ < options_.straggler_window) {
    return;
  }
  std::vector<double> times;  // µs a step
  for (Peer& peer : peers_) {
    if (!peer.position) return;
    const int64_t steps = peer.position->steps_done - peer.window_begin.steps_done;
    if (steps < kStragglerSteps) return;  // the window grows
    times.push_back(static_cast<double>(peer.position->busy_us - peer.window_begin.busy_us) /
                    static_cast<double>(steps));
  }
  for (Peer& peer : peers_) peer.window_begin = *peer.position;
  window_ = Clock::now();
  const auto slowest = std::max_element(times.begin(), times.end());
  const int rank = static_cast<int>(slowest - times.begin());
  const double time = *slowest;
  // The median of the other ranks, because of two ranks one would be half of it.
  times.erase(slowest);
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2),
                   times.end());
  const double median = times[times.size() / 2];
  const bool slow = time > options_.straggler_factor * median && time - median > kStragglerUs;
  const int before = std::exchange(slow_rank_, slow ? rank : -1);
  if (!slow) reported_rank_ = -1;
  if (!slow || before != rank || reported_rank_ == rank) return;
  reported_rank_ = rank;
  options_.on_straggler(
      fmt::format("{} is slow: {:.1f} ms of its own per step, the median of the "
                  "others is {:.1f} ms",
                  peers_[static_cast<size_t>(rank)].position->name, time / 1000, median / 1000));
}

void RankWatch::declare_failure(int rank, const std::string& message) {
  const RankFailure failure{.rank = rank, .stuck = true, .message = message};
  const std::string first = store_.put_new(watch_keys::kFailure, failure.to_text());
  const std::lock_guard lock(mutex_);
  failure_ = RankFailure::from_text(first);
}

}  // namespace dltrain

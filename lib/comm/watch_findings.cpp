// What rank 0's watch concludes from what the ranks say of themselves.
#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "comm/watch.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

// Fewer steps than this say nothing about a rank's speed; nor do differences below this.
constexpr int64_t kStragglerSteps = 10;
constexpr double kStragglerUs = 2000;

std::string seconds(milliseconds time) {
  return fmt::format("{:.1f} s", static_cast<double>(time.count()) / 1000);
}

// ", in" an operation, or after the last one.
std::string place(int64_t step, bool within, const std::string& operation) {
  std::string text = step < 0 ? " before the first step" : fmt::format(" at step {}", step + 1);
  if (!operation.empty()) text += (within ? ", in " : ", after ") + operation;
  return text;
}

// 0: none of that group.
uint64_t number_at(const std::vector<uint64_t>& numbers, int group) {
  const auto at = static_cast<size_t>(group);
  return at < numbers.size() ? numbers[at] : 0;
}

}  // namespace

// What several ranks count alike: the collectives of a group, or the messages from one of its ranks
// to another; and a place in it.
struct RankWatch::Sequence {
  int group = -1;
  int from = -1, to = -1;  // −1: collectives
  uint64_t number = 0;

  bool is_of_messages() const { return from >= 0; }

  // How many a rank has issued, and how many its device is done with.
  uint64_t issued_by(int rank, const WatchPosition& position) const {
    if (!is_of_messages()) return number_at(position.issued, group);
    const WatchMessages m = messages_of(rank, position);
    return rank == from ? m.sent : m.received;
  }
  uint64_t done_by(int rank, const WatchPosition& position) const {
    if (!is_of_messages()) return number_at(position.done, group);
    const WatchMessages m = messages_of(rank, position);
    return rank == from ? m.sent_done : m.received_done;
  }
  // The one that its device is in; 0: none.
  uint64_t entered_by(int rank, const WatchPosition& position) const {
    for (const Sequence& s : sequences_of(rank, position.device)) {
      if (s.group == group && s.from == from && s.to == to) return s.number;
    }
    return 0;
  }

 private:
  WatchMessages messages_of(int rank, const WatchPosition& position) const {
    for (const WatchMessages& m : position.messages) {
      if (m.group == group && m.peer == (rank == from ? to : from)) return m;
    }
    return {};
  }
};

// Those that a rank's operation stands in: an exchange is in two.
std::vector<RankWatch::Sequence> RankWatch::sequences_of(int rank, const WatchWait& wait) {
  std::vector<Sequence> out;
  if (wait.group < 0) return out;
  if (wait.number > 0) out.push_back({.group = wait.group, .number = wait.number});
  const auto add = [&](int from, int to, uint64_t number) {
    if (number > 0) out.push_back({.group = wait.group, .from = from, .to = to, .number = number});
  };
  add(rank, wait.to.peer, wait.to.number);
  add(wait.from.peer, rank, wait.from.number);
  return out;
}

std::string RankWatch::who(int rank) const {
  const auto& position = peers_[static_cast<size_t>(rank)].position;
  return position ? position->name : fmt::format("rank {}", rank);
}

std::string RankWatch::where(const WatchPosition& position) {
  return place(position.step, position.host.group >= 0, position.operation);
}

std::string RankWatch::where_device(const WatchPosition& position) {
  return place(position.device_step, position.device.group >= 0, position.device_operation);
}

void RankWatch::find_silent(int rank) {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  const auto silent = std::chrono::duration_cast<milliseconds>(Clock::now() - peer.changed);
  if (silent < options_.timeout || (peer.position && peer.position->finished)) return;
  decide(
      {.rank = rank,
       .stuck = true,
       .message = fmt::format("{} has given no sign of life for {}; it was last seen{}", who(rank),
                              seconds(silent), where(peer.position.value_or(WatchPosition{})))});
}

std::vector<int> RankWatch::members_of(const Sequence& sequence, const WatchWait& wait) const {
  if (sequence.is_of_messages()) return {sequence.from, sequence.to};
  if (!wait.members.empty()) return wait.members;
  std::vector<int> all(peers_.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// It has not come to the operation, and waits for nobody itself. A device that has its operations
// from the host waits for nobody where it is in none.
bool RankWatch::keeps(int rank, const WatchPosition& other, const Sequence& sequence,
                      bool of_device) {
  const uint64_t wanted = sequence.number;
  const uint64_t issued = sequence.issued_by(rank, other);
  if (!of_device || issued < wanted) return issued < wanted && !other.waits();
  const uint64_t reached =
      std::max(sequence.entered_by(rank, other), sequence.done_by(rank, other));
  return reached < wanted && other.device.group < 0;
}

// A rank waits too long for others: the one of them that is not waiting itself hangs.
void RankWatch::find_hanging() {
  // What a device waits for says more than what its host does.
  for (const bool of_device : {true, false}) {
    for (int rank = 0; rank < options_.size; ++rank) {
      if (find_keeper(rank, of_device)) return;
    }
  }
  find_hanging_devices();
}

// The rank that this one waits for too long, if it waits so.
bool RankWatch::find_keeper(int waiter, bool of_device) {
  const auto& w = peers_[static_cast<size_t>(waiter)].position;
  if (!w) return false;
  const WatchWait& wait = of_device ? w->device : w->host;
  if (wait.group < 0 || wait.ms < options_.timeout.count()) return false;
  for (const Sequence& sequence : sequences_of(waiter, wait)) {
    for (const int rank : members_of(sequence, wait)) {
      const auto& other = peers_[static_cast<size_t>(rank)].position;
      if (!other || !keeps(rank, *other, sequence, of_device)) continue;
      // The host has given it the operation: it is the device that does not come to it.
      const bool device = of_device && sequence.issued_by(rank, *other) >= sequence.number;
      decide({.rank = rank,
              .stuck = true,
              .message = fmt::format(
                  "{}{} hangs{}: {} has waited for it for {} in {}", device ? "the GPU of " : "",
                  other->name, device ? where_device(*other) : where(*other), w->name,
                  seconds(milliseconds(wait.ms)), of_device ? w->device_operation : w->operation)});
      return true;
    }
  }
  return false;
}

// Nobody is missing, and yet an operation does not end: on one GPU, or on all of them.
void RankWatch::find_hanging_devices() {
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const auto& position = peers_[rank].position;
    if (!position || position->device.ms < options_.timeout.count()) continue;
    const WatchWait& wait = position->device;
    const std::vector<Sequence> sequences = sequences_of(static_cast<int>(rank), wait);
    std::set<int> within;
    bool all_there = !sequences.empty();
    for (const Sequence& sequence : sequences) {
      for (const int member : members_of(sequence, wait)) {
        const auto& other = peers_[static_cast<size_t>(member)].position;
        if (other && sequence.entered_by(member, *other) == sequence.number) {
          within.insert(member);
        } else if (!other || sequence.done_by(member, *other) < sequence.number) {
          all_there = false;
        }
      }
    }
    if (!all_there) continue;
    decide({.rank = static_cast<int>(rank),
            .stuck = true,
            .message = fmt::format(
                "the GPU of {} hangs{} for {}: {}", position->name, where_device(*position),
                seconds(milliseconds(wait.ms)),
                within.size() == 1 ? "the other ranks are done with it"
                                   : fmt::format("{} GPUs are in it and none comes to its end; one "
                                                 "of them or a link between them stalls",
                                                 within.size()))});
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
  // The median of the others: with two ranks there is no other meaning.
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
      fmt::format("{} is slow: {:.1f} ms of its own a step, the median of the "
                  "others is {:.1f} ms",
                  who(rank), time / 1000, median / 1000));
}

void RankWatch::decide(const Verdict& verdict) {
  client_.put_new(watch_keys::kVerdict, verdict.to_text());
}

}  // namespace dltrain

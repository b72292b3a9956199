#include "comm/watch.h"

#include <algorithm>

#include <unistd.h>

#include "base/error.h"
#include "base/host_name.h"
#include "comm/signals.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

// How long a failed collective waits for the verdict.
constexpr milliseconds kVerdictTime{700};
// How long the training thread has to notice a verdict by itself, and then to end.
constexpr milliseconds kNoticeTime{300}, kEndTime{10'000};
// Fewer steps than this say nothing about a rank's speed; nor do differences below this.
constexpr int64_t kStragglerSteps = 10;
constexpr double kStragglerUs = 2000;

std::string position_key(int rank) {
  return "watch/rank/" + std::to_string(rank);
}

std::string own_name(int rank) {
  return fmt::format("rank {} (process {} on {})", rank, getpid(), host_name());
}

StoreOptions with_answer_time(StoreOptions store, milliseconds timeout) {
  store.answer_time = std::clamp(timeout, milliseconds(200), milliseconds(600'000));
  return store;
}

std::string seconds(milliseconds time) {
  return fmt::format("{:.1f} s", static_cast<double>(time.count()) / 1000);
}

int64_t microseconds(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

}  // namespace

RankWatch::RankWatch(StoreOptions store, WatchOptions options)
    : store_options_(with_answer_time(std::move(store), options.timeout)),
      options_(std::move(options)),
      self_(own_name(options_.rank)),
      interval_(std::clamp(options_.timeout / 4, milliseconds(20), kBeat)),
      client_(store_options_),
      peers_(static_cast<size_t>(options_.size)) {
  BlockSignals block;
  thread_ = std::thread([this] { run(); });
}

RankWatch::~RankWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RankWatch::at_step_begin(int64_t step) {
  std::lock_guard lock(mutex_);
  step_ = step;
  step_begin_ = Clock::now();
  waited_ = {};
  in_step_ = true;
}

void RankWatch::at_step_end(int64_t step) {
  std::lock_guard lock(mutex_);
  in_step_ = false;
  steps_done_ = step + 1;
  busy_ += Clock::now() - step_begin_ - waited_;
}

void RankWatch::begun() {
  client_.set(watch_keys::kBegun, "1");
}

void RankWatch::saved(int64_t step) {
  client_.set(watch_keys::kSaved, std::to_string(step));
}

void RankWatch::set_names(std::function<std::string(const void*)> names) {
  std::lock_guard lock(mutex_);
  names_ = std::move(names);
}

void RankWatch::joined(int group, std::span<const int> ranks) {
  if (group >= kMaxGroups) return;
  std::lock_guard lock(mutex_);
  members_[static_cast<size_t>(group)].assign(ranks.begin(), ranks.end());
}

void RankWatch::issued(int group, const ObservedOperation& operation) {
  std::lock_guard lock(mutex_);
  last_ = operation;
  if (operation.number > 0 && group < kMaxGroups) {
    issued_[static_cast<size_t>(group)] = operation.number;
  }
}

void RankWatch::waiting(int group, const ObservedOperation& operation) {
  std::lock_guard lock(mutex_);
  waiting_ = true;
  waiting_group_ = group;
  awaited_ = operation;
  wait_begin_ = Clock::now();
}

void RankWatch::done_waiting() {
  std::lock_guard lock(mutex_);
  waiting_ = false;
  waited_ += Clock::now() - wait_begin_;
}

std::string RankWatch::explain(const std::string& reason) {
  std::unique_lock lock(mutex_);
  noticed_ = urgent_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kVerdictTime, [&] { return verdict_.has_value() || finished_; });
  urgent_ = false;
  const std::string step = step_ < 0 ? "" : fmt::format(" at step {}", step_ + 1);
  if (verdict_) {
    return verdict_->message +
           fmt::format(" (rank {} noticed it{}, in {})", options_.rank, step, words(awaited_));
  }
  lock.unlock();
  if (!finished_) report(reason);
  return reason + step;
}

void RankWatch::report(const std::string& message) {
  try {
    const Verdict own{
        .rank = options_.rank,
        .stuck = false,
        .message = fmt::format("{} failed: {}", self_, message.substr(0, message.find('\n')))};
    client_.put_new(watch_keys::kVerdict, own.to_text());
    finish();
  } catch (const Error&) {
    // The store is gone: there is nobody to tell.
  }
}

void RankWatch::finish() {
  std::lock_guard one_at_a_time(telling_);
  {
    std::lock_guard lock(mutex_);
    finished_ = true;
  }
  changed_.notify_all();
  try {
    const WatchPosition last{.name = self_, .finished = true};
    client_.set(position_key(options_.rank), last.to_text());
    client_.set_will(watch_keys::kVerdict, "");
  } catch (const Error&) {
    // Another rank, which serves the store, has ended already.
  }
}

void RankWatch::run() {
  try {
    do beat();
    while (wait_for_next());
  } catch (const Error& error) {
    std::lock_guard lock(mutex_);
    if (finished_ || stopping_) return;
    verdict_ =
        Verdict{.rank = 0,
                .stuck = false,
                .message = fmt::format("{} lost touch with the run: {}", self_, error.what())};
  }
  end_if_unnoticed();
}

// Until the next beat, or until the training thread asks. False: there is nothing more to watch.
bool RankWatch::wait_for_next() {
  std::unique_lock lock(mutex_);
  const auto over = [this] { return finished_ || stopping_ || verdict_.has_value(); };
  const milliseconds pause = urgent_ ? std::min(interval_, milliseconds(20)) : interval_;
  changed_.wait_for(lock, pause, [&] { return over() || (urgent_ && pause == interval_); });
  return !over();
}

// The training thread learns of a verdict in its next collective; if it does not come to one, or
// does not end then, the process is ended.
void RankWatch::end_if_unnoticed() {
  std::unique_lock lock(mutex_);
  if (!verdict_) return;
  changed_.notify_all();
  const auto over = [this] { return stopping_ || finished_; };
  if (changed_.wait_for(lock, kNoticeTime, [&] { return noticed_ || over(); })) {
    changed_.wait_for(lock, kEndTime, over);
  }
  if (over() || !options_.on_lost) return;
  const std::string message = verdict_->message;
  lock.unlock();
  options_.on_lost(message);
}

void RankWatch::beat() {
  const WatchPosition own = own_position();
  const Verdict lost{.rank = options_.rank,
                     .stuck = false,
                     .message = fmt::format("{} was lost{}", self_, where(own))};
  {
    // Nothing of this may come after finish().
    std::lock_guard one_at_a_time(telling_);
    if (finished_) return;
    client_.set(position_key(options_.rank), own.to_text());
    client_.set_will(watch_keys::kVerdict, lost.to_text());
  }
  if (options_.rank == 0 && own.steps_done != told_step_) {
    client_.set(watch_keys::kStep, std::to_string(own.steps_done));
    told_step_ = own.steps_done;
  }
  peers_[static_cast<size_t>(options_.rank)].position = own;
  peers_[static_cast<size_t>(options_.rank)].changed = Clock::now();
  for (int i = 0; i < (options_.rank == 0 ? options_.size : 1); ++i) {
    if (i == options_.rank) continue;
    look_at(i);
    find_silent(i);
  }
  if (options_.rank == 0) {
    find_hanging();
    find_stragglers();
  }
  if (const auto text = client_.try_get(watch_keys::kVerdict)) {
    std::lock_guard lock(mutex_);
    verdict_ = Verdict::from_text(*text);
  }
}

WatchPosition RankWatch::own_position() {
  WatchPosition own{.beat = ++beats_, .name = self_};
  std::lock_guard lock(mutex_);
  own.step = step_;
  own.steps_done = steps_done_;
  own.busy_us = microseconds(busy_);
  own.issued.assign(issued_.begin(), issued_.end());
  while (!own.issued.empty() && own.issued.back() == 0) own.issued.pop_back();
  own.operation = words(waiting_ ? awaited_ : last_);
  if (waiting_) {
    own.group = waiting_group_;
    own.number = awaited_.number;
    own.peer = awaited_.peer;
    if (waiting_group_ < kMaxGroups) own.members = members_[static_cast<size_t>(waiting_group_)];
    own.waiting_ms = microseconds(Clock::now() - wait_begin_) / 1000;
  }
  return own;
}

// Within the lock: what gives the names may go away after it.
std::string RankWatch::describe(const ObservedOperation& operation) {
  const std::lock_guard lock(mutex_);
  return words(operation);
}

// Under the mutex.
std::string RankWatch::words(const ObservedOperation& operation) const {
  std::string text = operation.name;
  if (operation.number > 0) text += fmt::format(" {}", operation.number);
  if (operation.count > 0) {
    text += fmt::format(" of {} {}", operation.count, dtype_name(operation.dtype));
  }
  if (operation.peer >= 0) text += fmt::format(" with rank {}", operation.peer);
  const std::string name = names_ && operation.data ? names_(operation.data) : "";
  return name.empty() ? text : text + fmt::format(" ({})", name);
}

void RankWatch::look_at(int rank) {
  const auto text = client_.try_get(position_key(rank));
  if (!text) return;
  Peer& peer = peers_[static_cast<size_t>(rank)];
  auto position = WatchPosition::from_text(*text);
  if (!position || (peer.position && peer.position->beat == position->beat)) return;
  peer.position = std::move(position);
  peer.changed = Clock::now();
}

std::string RankWatch::who(int rank) const {
  const auto& position = peers_[static_cast<size_t>(rank)].position;
  return position ? position->name : fmt::format("rank {}", rank);
}

std::string RankWatch::where(const WatchPosition& position) const {
  std::string text =
      position.step < 0 ? " before the first step" : fmt::format(" at step {}", position.step + 1);
  if (!position.operation.empty()) {
    text += (position.group >= 0 ? ", in " : ", after ") + position.operation;
  }
  return text;
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

// A rank waits too long for others: the one of them that is not waiting itself hangs.
void RankWatch::find_hanging() {
  for (const Peer& waiter : peers_) {
    if (!waiter.position || waiter.position->group < 0 ||
        waiter.position->waiting_ms < options_.timeout.count()) {
      continue;
    }
    const WatchPosition& w = *waiter.position;
    for (int rank = 0; rank < options_.size; ++rank) {
      const auto& other = peers_[static_cast<size_t>(rank)].position;
      if (!other || other->group >= 0 || (w.peer >= 0 && w.peer != rank)) continue;
      const auto group = static_cast<size_t>(w.group);
      const bool member = w.members.empty() ||
                          std::find(w.members.begin(), w.members.end(), rank) != w.members.end();
      const uint64_t issued = group < other->issued.size() ? other->issued[group] : 0;
      if (w.peer < 0 && (!member || issued >= w.number)) continue;
      decide({.rank = rank,
              .stuck = true,
              .message = fmt::format("{} hangs{}: {} has waited for it for {} in {}", other->name,
                                     where(*other), w.name, seconds(milliseconds(w.waiting_ms)),
                                     w.operation)});
      return;
    }
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

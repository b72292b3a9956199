#include "comm/watch.h"

#include <algorithm>

#include <unistd.h>

#include "base/error.h"
#include "base/host_name.h"
#include "base/signals.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

// How long a failed collective waits for the verdict.
constexpr milliseconds kVerdictTime{700};
// How long the training thread has to end after it has noticed a verdict.
constexpr milliseconds kEndTime{10'000};

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

void RankWatch::told_stop() {
  client_.set(watch_keys::kToldStop, "1");
}

void RankWatch::joined(int group, std::span<const int> ranks) {
  // Or what is counted for a group is not there, or that of another one, and the wrong rank is
  // named.
  check_internal(group >= 0 && group < kMaxGroups, "group {} of at most {}", group, kMaxGroups);
  std::lock_guard lock(mutex_);
  const auto at = static_cast<size_t>(group);
  check_internal(!joined_[at], "two groups with the number {}", group);
  joined_[at] = true;
  if (ranks.size() < peers_.size()) members_[at].assign(ranks.begin(), ranks.end());
}

void RankWatch::issued(int group, const ObservedOperation& operation) {
  std::lock_guard lock(mutex_);
  last_ = operation;
  if (operation.number > 0 && group < kMaxGroups) {
    issued_[static_cast<size_t>(group)] = operation.number;
  }
  const ObservedMessage &to = operation.to, &from = operation.from;
  if (to.number > 0) messages_with(group, to.peer).sent = to.number;
  if (from.number > 0) messages_with(group, from.peer).received = from.number;
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

void RankWatch::on_device(int group, const ObservedOperation& operation) {
  std::lock_guard lock(mutex_);
  device_group_ = group;
  device_last_ = operation;
  device_begin_ = Clock::now();
}

void RankWatch::device_done(int group, const ObservedOperation& operation) {
  std::lock_guard lock(mutex_);
  // Several groups are followed one after the other: another may have been seen on the device
  // since.
  if (device_group_ == group || device_group_ < 0) {
    device_group_ = -1;
    device_last_ = operation;
  }
  if (operation.number > 0 && group < kMaxGroups) {
    done_[static_cast<size_t>(group)] = operation.number;
  }
  const ObservedMessage &to = operation.to, &from = operation.from;
  if (to.number > 0) messages_with(group, to.peer).sent_done = to.number;
  if (from.number > 0) messages_with(group, from.peer).received_done = from.number;
}

// Under the mutex. A rank has few partners.
WatchMessages& RankWatch::messages_with(int group, int peer) {
  for (WatchMessages& m : messages_) {
    if (m.group == group && m.peer == peer) return m;
  }
  return messages_.emplace_back(WatchMessages{.group = group, .peer = peer});
}

int64_t RankWatch::step() {
  std::lock_guard lock(mutex_);
  return step_;
}

std::string RankWatch::explain(const std::string& reason, bool certain) {
  std::unique_lock lock(mutex_);
  noticed_ = true;
  if (!certain) {
    urgent_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kVerdictTime, [&] { return verdict_.has_value() || finished_; });
    urgent_ = false;
  }
  const std::string step = step_ < 0 ? "" : fmt::format(" at step {}", step_ + 1);
  if (verdict_) {
    return verdict_->message +
           fmt::format(" (rank {} noticed it{}, in {})", options_.rank, step, words(awaited_));
  }
  lock.unlock();
  if (!finished_) report(reason);
  return reason + step;
}

void RankWatch::report(const std::string& message, ExitCode code) {
  std::unique_lock lock(mutex_);
  const std::string where = step_ < 0 ? "" : fmt::format(" at step {}", step_ + 1);
  lock.unlock();
  try {
    const Verdict own{
        .rank = options_.rank,
        .stuck = false,
        .message = fmt::format("{} failed: {}", self_, message.substr(0, message.find('\n'))),
        .where = where,
        .code = code};
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
    if (options_.rank == 0) {
      client_.set(watch_keys::kTimeout, std::to_string(options_.timeout.count()));
    }
    do beat();
    while (wait_for_next());
  } catch (const Error& error) {
    std::lock_guard lock(mutex_);
    if (finished_ || stopping_) return;
    if (options_.on_lost_touch) options_.on_lost_touch();
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
  if (changed_.wait_for(lock, options_.notice_time, [&] { return noticed_ || over(); })) {
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
                     .message = fmt::format("{} was lost{}", self_, where(own)),
                     .where = where(own)};
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
  const auto without_zeros = [](const auto& numbers) {
    std::vector<uint64_t> out(numbers.begin(), numbers.end());
    while (!out.empty() && out.back() == 0) out.pop_back();
    return out;
  };
  const auto wait_of = [&](int group, const ObservedOperation& operation, Clock::time_point begin) {
    WatchWait out{
        .group = group, .number = operation.number, .to = operation.to, .from = operation.from};
    if (group < kMaxGroups) out.members = members_[static_cast<size_t>(group)];
    out.ms = microseconds(Clock::now() - begin) / 1000;
    return out;
  };
  own.issued = without_zeros(issued_);
  own.done = without_zeros(done_);
  own.messages = messages_;
  own.operation = words(waiting_ ? awaited_ : last_);
  if (waiting_) own.host = wait_of(waiting_group_, awaited_, wait_begin_);
  own.device_operation = words(device_last_);
  own.device_step = device_last_.step;
  if (device_group_ >= 0) own.device = wait_of(device_group_, device_last_, device_begin_);
  return own;
}

std::string RankWatch::describe(const ObservedOperation& operation) {
  return words(operation);
}

std::string RankWatch::words(const ObservedOperation& operation) {
  std::string text = operation.name;
  if (operation.number > 0) text += fmt::format(" {}", operation.number);
  if (operation.count > 0) {
    text += fmt::format(" of {} {}", operation.count, dtype_name(operation.dtype));
  }
  const auto add = [&](const char* way, const ObservedMessage& message) {
    if (message.peer < 0) return;
    text += fmt::format(" {} rank {}", way, message.peer);
    if (message.number > 0) text += fmt::format(" (message {})", message.number);
  };
  add("to", operation.to);
  add("from", operation.from);
  return operation.about ? text + fmt::format(" ({})", *operation.about) : text;
}

void RankWatch::look_at(int rank) {
  const auto text = client_.try_get(position_key(rank));
  if (!text) return;
  Peer& peer = peers_[static_cast<size_t>(rank)];
  auto position = WatchPosition::from_text(*text, options_.size);
  if (!position || (peer.position && peer.position->beat == position->beat)) return;
  peer.position = std::move(position);
  peer.changed = Clock::now();
}

}  // namespace dltrain

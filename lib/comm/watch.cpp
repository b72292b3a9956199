#include "comm/watch.h"

#include <algorithm>

#include <unistd.h>

#include "base/error.h"
#include "base/host_name.h"
#include "base/signals.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

// The time that a failed operation waits for the reported failure.
constexpr milliseconds kFailureWait{700};
// The time that the training thread has to end the run after it has noticed a reported failure.
constexpr milliseconds kEndTime{10'000};
// Number of operations of a device group whose descriptions are kept.
constexpr size_t kTrackedOperations = 1024;

std::string own_name(int rank) {
  return fmt::format("rank {} (process {} on {})", rank, getpid(), host_name());
}

std::string at_step(int64_t step) {
  return step < 0 ? "" : fmt::format(" at step {}", step + 1);
}

int64_t microseconds(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

}  // namespace

RankWatch::RankWatch(StoreClient& store, WatchOptions options)
    : options_(std::move(options)),
      self_(own_name(options_.rank)),
      interval_(std::clamp(options_.timeout / 4, milliseconds(20), kHeartbeatInterval)),
      store_(store),
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
}

void RankWatch::at_step_end(int64_t step) {
  std::lock_guard lock(mutex_);
  steps_done_ = step + 1;
  busy_ += Clock::now() - step_begin_ - waited_;
}

void RankWatch::joined(int group, std::span<const int> ranks) {
  {
    std::lock_guard lock(mutex_);
    check_internal(issued_.emplace(group, 0).second, "two groups with the number {}", group);
    if (ranks.size() < peers_.size()) members_[group].assign(ranks.begin(), ranks.end());
  }
  if (ranks.size() == peers_.size()) return;
  store_.set(watch_keys::members(options_.rank, group), members_text(ranks));
}

// Called with the mutex.
void RankWatch::find_peer(int group, ObservedOperation& operation) const {
  const auto found = members_.find(group);
  if (operation.peer < 0 || found == members_.end()) return;
  operation.peer = found->second[static_cast<size_t>(operation.peer)];
}

void RankWatch::issued(int group, ObservedOperation operation) {
  std::lock_guard lock(mutex_);
  find_peer(group, operation);
  operation.step = step_;
  issued_[group] = operation.number;
  for (TrackedGroup& f : tracked_) {
    if (f.group != group) continue;
    f.ring[operation.ticket % f.ring.size()] = operation;
    f.issued = operation.ticket;
  }
  last_ = std::move(operation);
}

void RankWatch::waiting(int group, ObservedOperation operation) {
  std::lock_guard lock(mutex_);
  find_peer(group, operation);
  waiting_ = true;
  waiting_group_ = group;
  awaited_ = std::move(operation);
  wait_begin_ = Clock::now();
}

void RankWatch::done_waiting() {
  std::lock_guard lock(mutex_);
  waiting_ = false;
  waited_ += Clock::now() - wait_begin_;
}

void RankWatch::track(int group, CollectiveBackend& backend) {
  std::lock_guard lock(mutex_);
  tracked_.push_back({.group = group,
                      .backend = &backend,
                      .ring = std::vector<ObservedOperation>(kTrackedOperations)});
}

void RankWatch::untrack(int group) {
  std::lock_guard lock(mutex_);
  tracked_.remove_if([&](const TrackedGroup& f) { return f.group == group; });
}

// Called with the mutex. The groups of a device share one stream, which executes one operation at a
// time.
void RankWatch::poll_devices() {
  const int last_group = device_group_;
  device_group_ = -1;
  for (TrackedGroup& f : tracked_) {
    const DeviceProgress progress = f.backend->progress();
    const uint64_t done = std::min(progress.done, f.issued),
                   begun = std::min(progress.begun, f.issued);
    const bool within = begun > done;
    if (within && (last_group != f.group || device_last_.ticket != begun)) {
      device_begin_ = Clock::now();
    }
    if (within) device_group_ = f.group;
    if (within || done > f.done) device_last_ = f.ring[(within ? begun : done) % f.ring.size()];
    // Unless a later operation has replaced it.
    if (f.issued - done < f.ring.size()) done_[f.group] = f.ring[done % f.ring.size()].number;
    f.done = done;
  }
}

int64_t RankWatch::step() {
  std::lock_guard lock(mutex_);
  return step_;
}

std::string RankWatch::explain(const std::string& reason) {
  std::unique_lock lock(mutex_);
  noticed_ = true;
  changed_.notify_all();
  std::optional<RankFailure> failure = failure_;
  const std::string step = at_step(step_), operation = awaited_.text();
  lock.unlock();
  const bool asks = !failure && !finished_;
  try {
    const auto text = asks ? store_.find(watch_keys::kFailure, kFailureWait) : std::nullopt;
    if (text) failure = RankFailure::from_text(*text);
  } catch (const Error& error) {
    failure = store_failure(error);
  }
  if (failure) {
    return failure->message +
           fmt::format(" (rank {} noticed it{}, in {})", options_.rank, step, operation);
  }
  if (asks) report(reason);
  return reason + step;
}

void RankWatch::report(const std::string& message, ExitCode code) {
  const std::string where = at_step(step());
  try {
    const RankFailure own{
        .rank = options_.rank,
        .stuck = false,
        .message = fmt::format("{} failed: {}", self_, message.substr(0, message.find('\n'))),
        .where = where,
        .code = code};
    store_.put_new(watch_keys::kFailure, own.to_text());
    finish();
  } catch (const Error&) {
    // The store is gone, so nobody can be informed.
  }
}

void RankWatch::finish() {
  std::lock_guard writing(writing_);
  {
    std::lock_guard lock(mutex_);
    finished_ = true;
  }
  changed_.notify_all();
  try {
    const WatchPosition last{.rank = options_.rank, .name = self_, .finished = true};
    store_.set(watch_keys::position(options_.rank), last.to_text());
    store_.set_will(watch_keys::kFailure, "");
  } catch (const Error&) {
    // The rank that serves the store has ended already.
  }
}

void RankWatch::run() {
  try {
    for (bool over = false; !over;) {
      send_heartbeat();
      std::unique_lock lock(mutex_);
      over = changed_.wait_for(lock, interval_,
                               [this] { return finished_ || stopping_ || failure_.has_value(); });
    }
  } catch (const Error& error) {
    std::lock_guard lock(mutex_);
    if (finished_ || stopping_) return;
    failure_ = store_failure(error);
  }
  end_if_unnoticed();
}

RankFailure RankWatch::store_failure(const Error& error) const {
  if (options_.on_store_lost) options_.on_store_lost();
  return {.rank = 0,
          .message = fmt::format("{} lost its connection to the run: {}", self_, error.what())};
}

// The training thread notices a reported failure in its next operation. If it does not, or does not
// end the run then, on_lost is called.
void RankWatch::end_if_unnoticed() {
  std::unique_lock lock(mutex_);
  if (!failure_) return;
  changed_.notify_all();
  const auto over = [this] { return stopping_ || finished_; };
  if (changed_.wait_for(lock, options_.notice_time, [&] { return noticed_ || over(); })) {
    changed_.wait_for(lock, kEndTime, over);
  }
  if (over() || !options_.on_lost) return;
  const std::string message = failure_->message;
  lock.unlock();
  options_.on_lost(message);
}

// Sends and reads everything in one message.
void RankWatch::send_heartbeat() {
  using Operation = StoreOperation;
  const bool is_first = options_.rank == 0;
  const WatchPosition own = own_position();
  const RankFailure lost{.rank = options_.rank,
                         .message = fmt::format("{} was lost{}", self_, where(own)),
                         .where = where(own)};
  StoreClient::Values values;
  {
    // finish() must write the last position.
    std::lock_guard writing(writing_);
    if (finished_) return;
    values = store_.perform(std::vector<StoreRequest>{
        {is_first ? Operation::list : Operation::get,
         is_first ? watch_keys::kPositions : watch_keys::position(0)},
        {Operation::get, watch_keys::kFailure},
        {Operation::set, watch_keys::position(options_.rank), own.to_text()},
        {Operation::will, watch_keys::kFailure, lost.to_text()}});
    if (is_first && own.steps_done != written_step_) {
      store_.set(watch_keys::kStep, std::to_string(own.steps_done));
      written_step_ = own.steps_done;
    }
  }
  if (values[1]) {
    std::lock_guard lock(mutex_);
    failure_ = RankFailure::from_text(*values[1]);
    return;
  }
  if (!is_first) {
    note_position(values[0].value_or(""));
    return find_unresponsive(0);
  }
  for (const std::string& text : StoreClient::listed(*values[0])) note_position(text);
  note_position(own.to_text());
  for (int rank = 1; rank < options_.size; ++rank) find_unresponsive(rank);
  find_hanging();
  find_stragglers();
}

WatchPosition RankWatch::own_position() {
  std::lock_guard lock(mutex_);
  poll_devices();
  const auto wait_of = [&](int group, const ObservedOperation& operation, Clock::time_point begin) {
    return WatchWait{.group = group,
                     .number = operation.peer >= 0 ? WatchWait::kOfTwo : operation.number,
                     .peer = operation.peer,
                     .ms = microseconds(Clock::now() - begin) / 1000};
  };
  WatchPosition own{.rank = options_.rank,
                    .heartbeat = ++heartbeats_,
                    .name = self_,
                    .step = step_,
                    .steps_done = steps_done_,
                    .busy_us = microseconds(busy_),
                    .issued = issued_,
                    .operation = (waiting_ ? awaited_ : last_).text(),
                    .done = done_,
                    .device_operation = device_last_.text(),
                    .device_step = device_last_.step};
  if (waiting_) own.host = wait_of(waiting_group_, awaited_, wait_begin_);
  if (device_group_ >= 0) own.device = wait_of(device_group_, device_last_, device_begin_);
  return own;
}

std::string ObservedOperation::text() const {
  std::string text = name;
  if (number > 0 && peer < 0) text += fmt::format(" {}", number);
  if (count > 0) text += fmt::format(" of {} {}", count, dtype_name(dtype));
  if (peer >= 0) text += fmt::format(" with rank {}", peer);
  return subject ? text + fmt::format(" ({})", *subject) : text;
}

void RankWatch::note_position(const std::string& text) {
  auto position = WatchPosition::from_text(text, options_.size);
  if (position) peers_[static_cast<size_t>(position->rank)].note(std::move(*position));
}

}  // namespace dltrain

#include "comm/host_collectives.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/signals.h"

namespace dltrain {
namespace {

// The mixing step of splitmix64.
uint64_t mix(uint64_t state, uint64_t value) {
  uint64_t z = state + value + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// All ranks compute the slot from the arguments of their operation, so that the slots of different
// operations differ. The algorithm may also use slot + 1. `number`: of the group's collectives; the
// messages between two ranks are not counted, because the other ranks do not know of them.
uint64_t slot_of(const CollectiveCall& call, uint64_t number, int rank) {
  const bool pair = call.is_between_two();
  const auto kind = static_cast<uint64_t>(pair ? CollectiveKind::send : call.kind);
  const int root = call.kind == CollectiveKind::send      ? rank
                   : call.kind == CollectiveKind::receive ? call.peer
                                                          : call.root;
  uint64_t hash = mix(call.bytes(), kind);
  hash = mix(hash, static_cast<uint64_t>(call.dtype) * 2 + static_cast<uint64_t>(call.op));
  return mix(mix(hash, static_cast<uint64_t>(root)), pair ? 0 : number) & ~uint64_t{1};
}

std::vector<int> all_ranks(int size) {
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

HostCollectives::HostCollectives(StoreClient& store, const HostGroupOptions& options)
    : HostCollectives(std::make_shared<PeerConnector>(store, options), all_ranks(options.size),
                      options.watch) {}

HostCollectives::HostCollectives(std::shared_ptr<PeerConnector> connector,
                                 std::span<const int> ranks, RankWatch* watch)
    : connector_(std::move(connector)),
      group_number_(connector_->new_group()),
      watch_(watch),
      connections_(*connector_, ranks, group_number_),
      algorithms_(connections_),
      ring_(kCapacity),
      exceptions_at_start_(std::uncaught_exceptions()) {
  if (watch_ && group_number_ > 0) watch_->joined(group_number_, ranks);
  BlockSignals block;
  thread_ = std::thread([this] { work(); });
}

HostCollectives::~HostCollectives() {
  if (std::uncaught_exceptions() > exceptions_at_start_) connector_->close();
  try {
    if (issued_ > 0) finish(issued_);
  } catch (const Error&) {
    // wait() has reported it, or its result was not needed.
  }
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

HostCollectives::Ticket HostCollectives::queue(const CollectiveCall& call, Stream&) {
  const Ticket ticket = issued_ + 1;
  if (ticket > kCapacity) {
    try {
      finish(ticket - kCapacity);  // frees its place in the ring
    } catch (const Error&) {
      // wait() for the new ticket reports the failure.
    }
  }
  if (!call.is_between_two()) ++collectives_;
  const Queued queued{call, collectives_};
  if (watch_) watch_->issued(group_number_, observed_operation(call, collectives_, ticket));
  {
    std::lock_guard lock(mutex_);
    ring_[ticket % kCapacity] = queued;
    issued_ = ticket;
  }
  changed_.notify_all();
  return ticket;
}

void HostCollectives::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || (!running_ && executed_ < issued_); });
    if (stopping_) return;
    run_next(lock);
  }
}

void HostCollectives::run_next(std::unique_lock<std::mutex>& lock) {
  const Ticket ticket = executed_ + 1;
  if (failed_ == 0) {
    const Queued& queued = ring_[ticket % kCapacity];
    running_ = true;
    lock.unlock();
    try {
      run(queued);
    } catch (const std::exception& e) {
      record_failure(queued.call, e);
    }
    lock.lock();
    running_ = false;
  }
  executed_ = ticket;
  changed_.notify_all();
}

void HostCollectives::run(const Queued& queued) {
  const CollectiveCall& call = queued.call;
  const uint64_t slot = slot_of(call, queued.number, rank());
  if (connector_->options().before_operation) connector_->options().before_operation();
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      return algorithms_.all_reduce(call.output, call.count, call.dtype, call.op, slot);
    case CollectiveKind::reduce_scatter:
      return algorithms_.reduce_scatter(call.input, call.output, call.count, call.dtype, call.op,
                                        slot);
    case CollectiveKind::all_gather:
      return algorithms_.all_gather(call.input, call.output, call.bytes(), slot);
    case CollectiveKind::all_to_all:
      return algorithms_.all_to_all(call, slot);
    case CollectiveKind::broadcast:
      return algorithms_.broadcast(call.output, call.bytes(), call.root, slot);
    case CollectiveKind::send:
      return algorithms_.send(call.input, call.bytes(), call.peer, slot);
    case CollectiveKind::receive:
      return algorithms_.receive(call.output, call.bytes(), call.peer, slot);
    case CollectiveKind::barrier:
      return algorithms_.barrier(slot);
  }
}

void HostCollectives::finish(Ticket ticket) {
  std::unique_lock lock(mutex_);
  check_internal(ticket > 0 && ticket <= issued_, "wait for ticket {} of {}", ticket, issued_);
  // The waiting thread runs operations that the communication thread has not started: two changes
  // of threads take longer than a small message.
  while (executed_ < ticket) {
    if (running_) {
      changed_.wait(lock);
    } else {
      run_next(lock);
    }
  }
  if (failed_ != 0 && ticket >= failed_) std::rethrow_exception(error_);
}

// Called for operation executed_ + 1, without the lock.
void HostCollectives::record_failure(const CollectiveCall& call, const std::exception& error) {
  const HostGroupOptions& options = connector_->options();
  const std::string part =
      size() < options.size
          ? fmt::format(" (among ranks {})", fmt::join(connections_.ranks(), ", "))
          : "";
  std::string text;
  {
    std::lock_guard lock(mutex_);
    failed_ = executed_ + 1;
    text = fmt::format("rank {} of {}{} in {} (operation {}): {}", options.rank, options.size, part,
                       describe(call), failed_, error.what());
    error_ = std::make_exception_ptr(Error(ExitCode::rank, text));
  }
  // Informs the peers at once, whatever they are waiting for.
  connector_->close(text);
}

void HostCollectives::wait(Ticket ticket, Stream&) {
  ObservedOperation operation;
  bool observe = watch_ != nullptr;
  if (observe) {
    std::lock_guard lock(mutex_);
    observe = ticket + kCapacity > issued_;  // otherwise its place in the ring was reused
    const Queued& queued = ring_[ticket % kCapacity];
    if (observe) operation = observed_operation(queued.call, queued.number, ticket);
  }
  if (observe) watch_->waiting(group_number_, std::move(operation));
  try {
    finish(ticket);
  } catch (const Error& error) {
    if (watch_ == nullptr) throw;
    throw Error(error.code(), watch_->explain(error.what()));
  }
  if (observe) watch_->done_waiting();
}

void HostCollectives::settle() {
  std::unique_lock lock(mutex_);
  if (executed_ == issued_) return;
  connector_->close();
  changed_.wait(lock, [this] { return !running_; });
  if (failed_ != 0) return;
  failed_ = executed_ + 1;  // the operations that have not started are not run
  error_ = std::make_exception_ptr(Error(ExitCode::rank, "this rank has closed its connections"));
}

void HostCollectives::barrier() {
  HostStream stream;
  wait(queue({.kind = CollectiveKind::barrier}, stream), stream);
}

std::unique_ptr<Collectives> HostCollectives::split(std::span<const int> ranks) {
  check_internal(size() == connector_->options().size, "only a group of all ranks can be split");
  check_internal(std::is_sorted(ranks.begin(), ranks.end()) &&
                     std::binary_search(ranks.begin(), ranks.end(), rank()) && ranks.front() >= 0 &&
                     ranks.back() < size(),
                 "rank {} is no member of the group that it makes", rank());
  return std::unique_ptr<Collectives>(new HostCollectives(connector_, ranks, watch_));
}

std::unique_ptr<Collectives> HostCollectives::make_unobserved() {
  return std::unique_ptr<Collectives>(
      new HostCollectives(connector_, connections_.ranks(), nullptr));
}

}  // namespace dltrain

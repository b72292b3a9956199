#include "comm/host_collectives.h"

#include <cstring>

#include "base/error.h"
#include "base/signals.h"
#include "comm/gloo.h"
#include "comm/gloo_transport.h"
#include "comm/subgroup_transport.h"

namespace dltrain {
namespace {

// The mixing step of splitmix64.
uint64_t mix(uint64_t state, uint64_t value) {
  uint64_t z = state + value + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

HostCollectives::HostCollectives(std::unique_ptr<Transport> transport, CollectiveObserver* observer,
                                 int group_number)
    : transport_(std::move(transport)),
      observer_(observer),
      group_number_(group_number),
      exchange_(*transport_),
      ring_(kCapacity),
      counter_(transport_->size()),
      exceptions_at_start_(std::uncaught_exceptions()) {
  BlockSignals block;
  thread_ = std::thread([this] { work(); });
}

HostCollectives::~HostCollectives() {
  if (std::uncaught_exceptions() > exceptions_at_start_) transport_->close();
  try {
    for (Ticket t = issued_ > kCapacity ? issued_ - kCapacity + 1 : 1; t <= issued_; ++t) finish(t);
  } catch (const Error&) {
    // Reported by wait() already, or nobody asked.
  }
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// All ranks of an operation compute the same slot from what they believe it to be, so unequal ones
// never match. Groups that share connections differ in their number. The lowest bit is left to the
// algorithm.
uint64_t HostCollectives::slot_of(const Operation& operation) const {
  const CollectiveCall& o = operation.call;
  uint64_t h = mix(static_cast<uint64_t>(group_number_), o.bytes());
  h = mix(h, static_cast<uint64_t>(o.kind) + 1);
  h = mix(mix(h, static_cast<uint64_t>(o.dtype) * 2 + static_cast<uint64_t>(o.op)), o.root);
  return mix(h, operation.numbers.collective) & ~uint64_t{1};
}

uint64_t HostCollectives::message_slot(int from, int to, size_t bytes, uint64_t number) const {
  const uint64_t h = mix(static_cast<uint64_t>(group_number_), bytes);
  return mix(mix(mix(h, static_cast<uint64_t>(from)), static_cast<uint64_t>(to)), number) &
         ~uint64_t{1};
}

HostCollectives::Ticket HostCollectives::queue(const CollectiveCall& call, Stream&) {
  Operation operation{.call = call, .numbers = counter_.count(call)};
  const Ticket ticket = issued_ + 1;
  if (ticket > kCapacity) {
    try {
      finish(ticket - kCapacity);  // its place in the ring is needed
    } catch (const Error&) {
      // The group is dead; the wait() for this ticket says so.
    }
  }
  operation.ticket = ticket;
  if (observer_) observer_->issued(group_number_, observed(operation));
  {
    std::lock_guard lock(mutex_);
    ring_[ticket % kCapacity] = std::move(operation);
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
  Operation& o = ring_[(executed_ + 1) % kCapacity];
  if (failed_ == 0) {
    running_ = true;
    lock.unlock();
    try {
      run(o);
    } catch (const std::exception& e) {
      record_failure(o, e);
    }
    lock.lock();
    running_ = false;
  }
  ++executed_;
  changed_.notify_all();
}

void HostCollectives::run(Operation& operation) {
  const CollectiveCall& o = operation.call;
  const uint64_t slot = slot_of(operation);
  transport_->drop_unused();
  switch (o.kind) {
    case Kind::all_reduce:
      return exchange_.all_reduce(o.output, o.count, o.dtype, o.op, slot);
    case Kind::reduce_scatter:
      return exchange_.reduce_scatter(o.input, o.output, o.count, o.dtype, o.op, slot);
    case Kind::all_gather:
      return exchange_.all_gather(o.input, o.output, o.bytes(), slot);
    case Kind::broadcast:
      return exchange_.broadcast(o.output, o.bytes(), o.root, slot);
    case Kind::all_to_all:
      return exchange_.all_to_all(o.input, o.output, o.bytes(), slot);
    case Kind::message:
      return pass(operation);
    case Kind::barrier:
      return exchange_.barrier(slot);
  }
}

// Both halves are under way together. Gloo says that a message is sent when its receiver has asked
// for it and has it.
void HostCollectives::pass(const Operation& operation) {
  const CollectiveCall& o = operation.call;
  if (o.to == rank()) {
    if (o.count > 0) std::memcpy(o.output, o.input, o.bytes());
    return;
  }
  Channel *out = nullptr, *in = nullptr;
  if (o.receives()) {
    in = &transport_->cached(o.from, o.output, o.received_bytes());
    in->receive(message_slot(o.from, rank(), o.received_bytes(), operation.numbers.received), 0,
                o.received_bytes());
  }
  if (o.sends()) {
    out = &transport_->cached(o.to, const_cast<void*>(o.input), o.bytes());
    out->send(message_slot(rank(), o.to, o.bytes(), operation.numbers.sent), 0, o.bytes());
  }
  if (in != nullptr) in->wait_received();
  if (out != nullptr) out->wait_sent();
}

void HostCollectives::finish(Ticket ticket) {
  std::unique_lock lock(mutex_);
  check_internal(ticket > 0 && ticket <= issued_, "wait for ticket {} of {}", ticket, issued_);
  // Who waits anyway runs what the communication thread has not begun: two changes of thread take
  // longer than a small message.
  while (executed_ < ticket) {
    if (running_) {
      changed_.wait(lock);
    } else {
      run_next(lock);
    }
  }
  if (failed_ != 0 && ticket >= failed_) std::rethrow_exception(error_);
}

void HostCollectives::record_failure(const Operation& o, const std::exception& error) {
  CollectiveCall call = o.call;  // its ranks as messages call them
  if (call.to >= 0) call.to = transport_->name_of(call.to);
  if (call.from >= 0) call.from = transport_->name_of(call.from);
  {
    std::lock_guard lock(mutex_);
    if (failed_ == 0 || o.ticket < failed_) {
      failed_ = o.ticket;
      certain_ = dynamic_cast<const OtherOperation*>(&error) != nullptr;
      error_ = std::make_exception_ptr(
          Error(ExitCode::rank, fmt::format("{} in {} (operation {}): {}", transport_->self(),
                                            describe(call), o.ticket, error.what())));
    }
  }
  // The peers learn at once that this rank is out, whatever they are waiting for.
  transport_->close();
}

ObservedOperation HostCollectives::observed(const Operation& o) const {
  return observed_operation(o.call, o.numbers, [&](int rank) { return transport_->name_of(rank); });
}

void HostCollectives::finish_observed(Ticket ticket) {
  if (!observer_) return finish(ticket);
  bool forgotten = false;  // another one has its place in the ring: it is over
  ObservedOperation operation;
  {
    std::lock_guard lock(mutex_);
    const Operation& o = ring_[ticket % kCapacity];
    forgotten = o.ticket != ticket;
    if (!forgotten) operation = observed(o);
  }
  if (forgotten) return finish(ticket);
  observer_->waiting(group_number_, operation);
  try {
    finish(ticket);
  } catch (const Error& error) {
    bool certain = false;
    {
      std::lock_guard lock(mutex_);
      certain = certain_;
    }
    throw Error(error.code(), observer_->explain(error.what(), certain));
  }
  observer_->done_waiting();
}

void HostCollectives::wait(Ticket ticket, Stream&) {
  finish_observed(ticket);
}

void HostCollectives::barrier() {
  HostStream stream;
  finish_observed(queue({.kind = Kind::barrier}, stream));
}

std::unique_ptr<Collectives> HostCollectives::split(std::span<const int> ranks) {
  check_internal(group_number_ == 0, "a part of a group has no parts");
  const int number = ++groups_;
  if (observer_) observer_->joined(number, ranks);
  return std::make_unique<HostCollectives>(
      make_subgroup(*transport_, {ranks.begin(), ranks.end()}, number), observer_, number);
}

std::unique_ptr<Collectives> make_gloo(StoreClient& store, const GlooOptions& options) {
  check_internal(options.size > 1 && options.rank >= 0 && options.rank < options.size,
                 "rank {} of {}", options.rank, options.size);
  return std::make_unique<HostCollectives>(connect_gloo(store, options), options.observer,
                                           options.group_number);
}

}  // namespace dltrain

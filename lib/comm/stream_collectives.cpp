#include "comm/stream_collectives.h"

#include <algorithm>

#include "base/error.h"

namespace dltrain {

StreamCollectives::StreamCollectives(Device& device, int rank, int size)
    : device_(device),
      rank_(rank),
      size_(size),
      stream_(device.make_stream()),
      ready_(device.make_event()),
      counter_(size) {
  for (auto& mark : done_) mark = device.make_event();
}

StreamCollectives::StreamCollectives(StreamCollectives& whole, std::vector<int> ranks, int rank)
    : device_(whole.device_),
      rank_(rank),
      size_(static_cast<int>(ranks.size())),
      ranks_(std::move(ranks)),
      whole_(&whole),
      stream_(whole.stream_),
      ready_(whole.device_.make_event()),
      counter_(size_) {
  for (auto& mark : done_) mark = device_.make_event();
}

StreamCollectives::~StreamCollectives() {
  if (follower_) follower_->remove(group_number_);
  if (whole_ != nullptr) std::erase(whole_->parts_, this);
  try {
    stream_->synchronize();
  } catch (const Error&) {  // of a device that has failed: told already
  }
}

void StreamCollectives::join(std::unique_ptr<Carrier> carrier, Collectives& host,
                             CollectiveObserver* observer, int group_number) {
  check_internal(host.rank() == rank_ && host.size() == size_, "rank {} of {} joins as {} of {}",
                 host.rank(), host.size(), rank_, size_);
  observer_ = observer;
  if (observer != nullptr) follower_ = std::make_shared<DeviceFollower>(*observer);
  join_as(std::move(carrier), host, group_number);
  for (StreamCollectives* part : parts_) {
    part->observer_ = observer;
    part->follower_ = follower_;
    part->own_host_ = host.split(part->ranks_);
    ++group_number;
    if (observer != nullptr) observer->joined(group_number, part->ranks_);
    part->join_as(carrier_->split(part->ranks_), *part->own_host_, group_number);
  }
}

void StreamCollectives::join_as(std::unique_ptr<Carrier> carrier, Collectives& host,
                                int group_number) {
  carrier_ = std::move(carrier);
  host_ = &host;
  group_number_ = group_number;
  if (follower_) follower_->add(group_number, *carrier_);
}

std::unique_ptr<Collectives> StreamCollectives::split(std::span<const int> ranks) {
  check_internal(carrier_ == nullptr && whole_ == nullptr,
                 "a group over GPUs is split when it is made");
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  check_internal(own != ranks.end() && std::is_sorted(ranks.begin(), ranks.end()),
                 "rank {} makes a group that is none of its own", rank_);
  std::unique_ptr<StreamCollectives> part(new StreamCollectives(
      *this, {ranks.begin(), ranks.end()}, static_cast<int>(own - ranks.begin())));
  parts_.push_back(part.get());
  return part;
}

// Peers are told by their rank in the whole.
ObservedOperation StreamCollectives::observed(const CollectiveCall& call,
                                              const CallNumbers& numbers) const {
  return observed_operation(call, numbers, [&](int rank) {
    return whole_ != nullptr ? ranks_[static_cast<size_t>(rank)] : rank;
  });
}

StreamCollectives::Ticket StreamCollectives::queue(const CollectiveCall& call, Stream& after) {
  check_internal(carrier_ != nullptr, "{} before the ranks have met", collective_name(call));
  const CallNumbers numbers = counter_.count(call);
  if (observer_ != nullptr) {
    const ObservedOperation operation = observed(call, numbers);
    observer_->issued(group_number_, operation);
    follower_->queued(group_number_, operation);
  }
  const Ticket ticket = ++issued_;
  ready_->record(after);
  ready_->make_wait(*stream_);
  check();
  carrier_->queue(call, *stream_);
  done_[ticket % kMarks]->record(*stream_);
  return ticket;
}

void StreamCollectives::wait(Ticket ticket, Stream& before) {
  check_internal(ticket > 0 && ticket <= issued_, "wait for ticket {} of {}", ticket, issued_);
  done_[ticket % kMarks]->make_wait(before);
}

void StreamCollectives::check() {
  StreamCollectives& whole = whole_ != nullptr ? *whole_ : *this;
  whole.check_own();
  for (StreamCollectives* part : whole.parts_) part->check_own();
}

void StreamCollectives::check_own() {
  if (carrier_ == nullptr) return;
  const std::optional<CarrierFailure> failure = carrier_->failure();
  if (!failure) return;
  const auto failed = [&](const std::string& operation) {
    return fmt::format("{}, in {}", failure->reason, operation);
  };
  if (observer_ == nullptr) throw Error(ExitCode::rank, failed(describe(failure->call)));
  const ObservedOperation operation = observed(failure->call, {});
  observer_->waiting(group_number_, operation);
  throw Error(ExitCode::rank, observer_->explain(failed(observer_->describe(operation)), false));
}

void StreamCollectives::barrier() {
  stream_->synchronize();
  check();
  host_->barrier();
}

void StreamCollectives::abandon() {
  StreamCollectives& whole = whole_ != nullptr ? *whole_ : *this;
  if (whole.carrier_ != nullptr) whole.carrier_->abandon();
  for (StreamCollectives* part : whole.parts_) {
    if (part->carrier_ != nullptr) part->carrier_->abandon();
  }
}

}  // namespace dltrain

#include "comm/stream_collectives.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace dltrain {

StreamCollectives::StreamCollectives(Device& device, int rank, int size)
    : device_(device),
      rank_(rank),
      size_(size),
      ranks_(static_cast<size_t>(size)),
      stream_(device.make_stream()),
      ready_(device.make_event()) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
  for (auto& mark : done_) mark = device.make_event();
}

StreamCollectives::StreamCollectives(StreamCollectives& whole, std::vector<int> ranks, int rank)
    : device_(whole.device_),
      rank_(rank),
      size_(static_cast<int>(ranks.size())),
      ranks_(std::move(ranks)),
      whole_(&whole),
      stream_(whole.stream_),
      ready_(whole.device_.make_event()) {
  for (auto& mark : done_) mark = device_.make_event();
}

StreamCollectives::~StreamCollectives() {
  if (watch_ != nullptr) watch_->untrack(group_number_);
  if (whole_ != nullptr) std::erase(whole_->parts_, this);
  try {
    stream_->synchronize();
  } catch (const Error&) {  // the failure of the device was reported already
  }
}

void StreamCollectives::join(std::unique_ptr<CollectiveBackend> backend, Collectives& host,
                             RankWatch* watch, int group_number) {
  check_internal(host.rank() == rank_ && host.size() == size_, "rank {} of {} joins as {} of {}",
                 host.rank(), host.size(), rank_, size_);
  join_as(std::move(backend), host, watch, group_number);
  for (StreamCollectives* part : parts_) {
    part->join_as(backend_->split(part->ranks_), host, watch, ++group_number);
  }
}

void StreamCollectives::join_as(std::unique_ptr<CollectiveBackend> backend, Collectives& host,
                                RankWatch* watch, int group_number) {
  backend_ = std::move(backend);
  host_ = &host;
  watch_ = watch;
  group_number_ = group_number;
  if (watch == nullptr) return;
  watch->joined(group_number, ranks_);
  watch->track(group_number, *backend_);
}

std::unique_ptr<Collectives> StreamCollectives::split(std::span<const int> ranks) {
  check_internal(backend_ == nullptr && whole_ == nullptr,
                 "only the group of all GPUs can be split, before it is joined");
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  check_internal(own != ranks.end() && std::is_sorted(ranks.begin(), ranks.end()),
                 "rank {} is no member of the group that it makes", rank_);
  std::unique_ptr<StreamCollectives> part(new StreamCollectives(
      *this, {ranks.begin(), ranks.end()}, static_cast<int>(own - ranks.begin())));
  parts_.push_back(part.get());
  return part;
}

StreamCollectives::Ticket StreamCollectives::queue(const CollectiveCall& call, Stream& after) {
  check_internal(backend_ != nullptr, "{} before the group was joined", collective_name(call.kind));
  const Ticket ticket = ++issued_;
  if (!call.is_between_two()) ++collectives_;
  if (watch_ != nullptr) {
    watch_->issued(group_number_, observed_operation(call, collectives_, ticket));
  }
  ready_->record(after);
  ready_->make_wait(*stream_);
  check();
  backend_->queue(call, *stream_);
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
  if (backend_ == nullptr) return;
  const std::optional<CollectiveFailure> failure = backend_->failure();
  if (!failure) return;
  const std::string reason = fmt::format("{}, in {}", failure->reason, describe(failure->call));
  if (watch_ == nullptr) throw Error(ExitCode::rank, reason);
  watch_->waiting(group_number_, observed_operation(failure->call, 0, 0));
  throw Error(ExitCode::rank, watch_->explain(reason));
}

void StreamCollectives::barrier() {
  stream_->synchronize();
  check();
  host_->barrier();
}

void StreamCollectives::abort() {
  StreamCollectives& whole = whole_ != nullptr ? *whole_ : *this;
  if (whole.backend_ != nullptr) whole.backend_->abort();
  for (StreamCollectives* part : whole.parts_) {
    if (part->backend_ != nullptr) part->backend_->abort();
  }
}

}  // namespace dltrain

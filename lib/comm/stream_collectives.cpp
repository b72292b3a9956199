#include "comm/stream_collectives.h"

#include "base/error.h"

namespace dltrain {

StreamCollectives::StreamCollectives(Device& device, int rank, int size)
    : rank_(rank), size_(size), stream_(device.make_stream()), ready_(device.make_event()) {
  for (auto& mark : done_) mark = device.make_event();
}

StreamCollectives::~StreamCollectives() {
  try {
    stream_->synchronize();
  } catch (const Error&) {  // of a device that has failed: told already
  }
}

void StreamCollectives::join(std::unique_ptr<Carrier> carrier, Collectives& host,
                             CollectiveObserver* observer, int group_number) {
  check_internal(host.rank() == rank_ && host.size() == size_, "rank {} of {} joins as {} of {}",
                 host.rank(), host.size(), rank_, size_);
  carrier_ = std::move(carrier);
  host_ = &host;
  observer_ = observer;
  group_number_ = group_number;
}

StreamCollectives::Ticket StreamCollectives::issue(const CollectiveCall& call, Stream& after) {
  check_internal(carrier_ != nullptr, "{} before the ranks have met", describe(call));
  check_internal(call.peer >= 0 && call.peer < size_, "{} with rank {} of {}",
                 collective_name(call.kind), call.peer, size_);
  const uint64_t number = is_message(call.kind) ? 0 : ++collectives_;
  if (observer_ != nullptr) observer_->issued(group_number_, observed_operation(call, number));
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
  if (carrier_ == nullptr) return;
  const std::optional<CarrierFailure> failure = carrier_->failure();
  if (!failure) return;
  const auto failed = [&](const std::string& operation) {
    return fmt::format("{}, in {}", failure->reason, operation);
  };
  if (observer_ == nullptr) throw Error(ExitCode::rank, failed(describe(failure->call)));
  const ObservedOperation operation = observed_operation(failure->call, 0);
  observer_->waiting(group_number_, operation);
  throw Error(ExitCode::rank, observer_->explain(failed(observer_->describe(operation))));
}

void StreamCollectives::barrier() {
  stream_->synchronize();
  check();
  host_->barrier();
}

void StreamCollectives::abandon() {
  if (carrier_ != nullptr) carrier_->abandon();
}

StreamCollectives::Ticket StreamCollectives::all_reduce(void* data, size_t count, DType dtype,
                                                        ReduceOp op, Stream& after) {
  return issue({.kind = CollectiveKind::all_reduce,
                .dtype = dtype,
                .op = op,
                .output = data,
                .count = count},
               after);
}

StreamCollectives::Ticket StreamCollectives::reduce_scatter(const void* input, void* output,
                                                            size_t count, DType dtype, ReduceOp op,
                                                            Stream& after) {
  return issue({.kind = CollectiveKind::reduce_scatter,
                .dtype = dtype,
                .op = op,
                .input = input,
                .output = output,
                .count = count},
               after);
}

StreamCollectives::Ticket StreamCollectives::all_gather(const void* input, void* output,
                                                        size_t count, DType dtype, Stream& after) {
  return issue({.kind = CollectiveKind::all_gather,
                .dtype = dtype,
                .input = input,
                .output = output,
                .count = count},
               after);
}

StreamCollectives::Ticket StreamCollectives::broadcast(void* data, size_t count, DType dtype,
                                                       int root, Stream& after) {
  return issue({.kind = CollectiveKind::broadcast,
                .dtype = dtype,
                .peer = root,
                .output = data,
                .count = count},
               after);
}

StreamCollectives::Ticket StreamCollectives::all_to_all(const void* input, void* output,
                                                        size_t count, DType dtype, Stream& after) {
  return issue({.kind = CollectiveKind::all_to_all,
                .dtype = dtype,
                .input = input,
                .output = output,
                .count = count},
               after);
}

StreamCollectives::Ticket StreamCollectives::send(const void* data, size_t count, DType dtype,
                                                  int to, Stream& after) {
  check_internal(to != rank_, "send to itself");
  return issue(
      {.kind = CollectiveKind::send, .dtype = dtype, .peer = to, .input = data, .count = count},
      after);
}

StreamCollectives::Ticket StreamCollectives::receive(void* data, size_t count, DType dtype,
                                                     int from, Stream& after) {
  check_internal(from != rank_, "receive from itself");
  return issue({.kind = CollectiveKind::receive,
                .dtype = dtype,
                .peer = from,
                .output = data,
                .count = count},
               after);
}

}  // namespace dltrain

#include "device/collectives.h"

#include <cstdint>

#include "base/error.h"

namespace dltrain {
namespace {

using Kind = CollectiveKind;

bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto at = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  return a_bytes > 0 && b_bytes > 0 && at(a) < at(b) + b_bytes && at(b) < at(a) + a_bytes;
}

// Why it is none; empty: it is one.
const char* message_mistake(const CollectiveCall& call, int rank, int size) {
  if (!call.sends() && !call.receives()) return "it goes and comes to nobody";
  if (call.to >= size || call.from >= size) return "there is no such rank";
  const bool to_itself = call.to == rank;
  if (to_itself != (call.from == rank)) return "it has one end";
  if (to_itself && call.count != call.received) return "it gives itself another number";
  if (overlap(call.input, call.bytes(), call.output, call.received_bytes())) {
    return "both are in one place";
  }
  return "";
}

// Every mistake that can be seen on one rank.
const char* mistake_in(const CollectiveCall& call, int rank, int size) {
  // So that all ranks' bytes are a number.
  constexpr size_t kMost = size_t{1} << 56;
  if (call.count >= kMost / static_cast<size_t>(size) || call.received >= kMost) {
    return "so many there are nowhere";
  }
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter:
      return is_reducible(call.dtype) ? "" : "its dtype has no sums";
    case Kind::broadcast:
      return call.root >= 0 && call.root < size ? "" : "there is no such root";
    case Kind::message:
      return message_mistake(call, rank, size);
    case Kind::all_gather:
    case Kind::all_to_all:
      return "";
    case Kind::barrier:
      break;
  }
  return "streams have none";
}

}  // namespace

bool is_reducible(DType dtype) {
  return is_floating(dtype) || dtype == DType::i32 || dtype == DType::i64;
}

const char* collective_name(const CollectiveCall& call) {
  switch (call.kind) {
    case Kind::all_reduce:
      return "all_reduce";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::all_gather:
      return "all_gather";
    case Kind::broadcast:
      return "broadcast";
    case Kind::all_to_all:
      return "all_to_all";
    case Kind::message:
      return !call.sends() ? "receive" : call.receives() ? "exchange" : "send";
    case Kind::barrier:
      break;
  }
  return "barrier";
}

std::string describe(const CollectiveCall& call) {
  std::string text = collective_name(call);
  if (call.kind == Kind::barrier) return text;
  text += fmt::format(" of {} {}",
                      call.kind == Kind::message && !call.sends() ? call.received : call.count,
                      dtype_name(call.dtype));
  if (call.sends()) text += fmt::format(" to rank {}", call.to);
  if (call.sends() && call.receives()) text += fmt::format(" for {}", call.received);
  if (call.receives()) text += fmt::format(" from rank {}", call.from);
  if (call.about) text += fmt::format(" ({})", *call.about);
  return text;
}

CollectiveExtent extent_of(const CollectiveCall& call, int rank, int size) {
  const size_t part = call.count, all = part * static_cast<size_t>(size);
  switch (call.kind) {
    case Kind::all_reduce:
      return {part, part, true};
    case Kind::reduce_scatter:
      return {all, part, false};
    case Kind::all_gather:
      return {part, all, false};
    case Kind::broadcast:
      return call.root == rank ? CollectiveExtent{part, 0, true} : CollectiveExtent{0, part, true};
    case Kind::all_to_all:
      return {all, all, false};
    case Kind::message:
      return {part, call.received, false};
    case Kind::barrier:
      break;
  }
  return {};
}

Collectives::Ticket Collectives::all_reduce(void* data, size_t count, DType dtype, ReduceOp op,
                                            Stream& after, CallSubject about) {
  return issue({.kind = Kind::all_reduce,
                .dtype = dtype,
                .op = op,
                .output = data,
                .count = count,
                .about = std::move(about)},
               after);
}

Collectives::Ticket Collectives::reduce_scatter(const void* input, void* output, size_t count,
                                                DType dtype, ReduceOp op, Stream& after,
                                                CallSubject about) {
  return issue({.kind = Kind::reduce_scatter,
                .dtype = dtype,
                .op = op,
                .input = input,
                .output = output,
                .count = count,
                .about = std::move(about)},
               after);
}

Collectives::Ticket Collectives::all_gather(const void* input, void* output, size_t count,
                                            DType dtype, Stream& after, CallSubject about) {
  return issue({.kind = Kind::all_gather,
                .dtype = dtype,
                .input = input,
                .output = output,
                .count = count,
                .about = std::move(about)},
               after);
}

Collectives::Ticket Collectives::broadcast(void* data, size_t count, DType dtype, int root,
                                           Stream& after, CallSubject about) {
  return issue({.kind = Kind::broadcast,
                .dtype = dtype,
                .root = root,
                .output = data,
                .count = count,
                .about = std::move(about)},
               after);
}

Collectives::Ticket Collectives::all_to_all(const void* input, void* output, size_t count,
                                            DType dtype, Stream& after) {
  return issue(
      {.kind = Kind::all_to_all, .dtype = dtype, .input = input, .output = output, .count = count},
      after);
}

Collectives::Ticket Collectives::send(const void* data, size_t count, DType dtype, int to,
                                      Stream& after) {
  check_internal(to >= 0, "send to rank {}", to);
  return issue({.kind = Kind::message, .dtype = dtype, .input = data, .count = count, .to = to},
               after);
}

Collectives::Ticket Collectives::receive(void* data, size_t count, DType dtype, int from,
                                         Stream& after) {
  check_internal(from >= 0, "receive from rank {}", from);
  return issue(
      {.kind = Kind::message, .dtype = dtype, .output = data, .from = from, .received = count},
      after);
}

Collectives::Ticket Collectives::exchange(const Outgoing& out, const Incoming& in, DType dtype,
                                          Stream& after) {
  check_internal(out.to >= 0 && in.from >= 0, "exchange with ranks {} and {}", out.to, in.from);
  return issue({.kind = Kind::message,
                .dtype = dtype,
                .input = out.data,
                .output = in.data,
                .count = out.count,
                .to = out.to,
                .from = in.from,
                .received = in.count},
               after);
}

Collectives::Ticket Collectives::issue(const CollectiveCall& call, Stream& after) {
  const char* mistake = mistake_in(call, rank(), size());
  if (mistake[0] != '\0') {
    fail(ExitCode::internal, "internal error: rank {} of {}: {}: {}", rank(), size(),
         describe(call), mistake);
  }
  return queue(call, after);
}

std::unique_ptr<Collectives> Collectives::split(std::span<const int> ranks) {
  fail(ExitCode::usage, "these ranks have no group of {} of them", ranks.size());
}

}  // namespace dltrain

#include "device/collectives.h"

#include "base/error.h"

namespace dltrain {
namespace {

using Kind = CollectiveKind;

// Returns what is wrong with the arguments, or an empty string.
const char* error_in(const CollectiveCall& call, int rank, int size) {
  constexpr size_t kMaxElements = size_t{1} << 56;  // keeps the bytes of all ranks below 2^64
  if (call.count >= kMaxElements / static_cast<size_t>(size)) return "too many elements";
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter:
      return is_reducible(call.dtype) ? "" : "this dtype cannot be reduced";
    case Kind::broadcast:
      return call.root >= 0 && call.root < size ? "" : "there is no such root";
    case Kind::all_gather:
      return "";
    case Kind::all_to_all:
      return call.input != nullptr || call.count == 0 ? "" : "an all_to_all is not in place";
    case Kind::send:
    case Kind::receive:
      return call.peer >= 0 && call.peer < size && call.peer != rank ? "" : "there is no such peer";
    case Kind::barrier:
      break;
  }
  return "a barrier cannot be issued on a stream";
}

}  // namespace

bool is_reducible(DType dtype) {
  return is_floating(dtype) || dtype == DType::i32 || dtype == DType::i64;
}

const char* collective_name(CollectiveKind kind) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                    "broadcast",  "send",           "receive",    "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

std::string describe(const CollectiveCall& call) {
  std::string text = collective_name(call.kind);
  if (call.kind == Kind::barrier) return text;
  text += fmt::format(" of {} {}", call.count, dtype_name(call.dtype));
  if (call.is_between_two()) {
    text += fmt::format(" {} rank {}", call.kind == Kind::send ? "to" : "from", call.peer);
  }
  return call.subject ? text + fmt::format(" ({})", *call.subject) : text;
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
    case Kind::all_to_all:
      return {all, all, false};
    case Kind::broadcast:
      return call.root == rank ? CollectiveExtent{part, 0, true} : CollectiveExtent{0, part, true};
    case Kind::send:
      return {part, 0, true};
    case Kind::receive:
      return {0, part, true};
    case Kind::barrier:
      break;
  }
  return {};
}

Collectives::Ticket Collectives::all_reduce(void* data, size_t count, DType dtype, ReduceOp op,
                                            Stream& after, OperationSubject subject) {
  return issue({.kind = Kind::all_reduce,
                .dtype = dtype,
                .op = op,
                .output = data,
                .count = count,
                .subject = std::move(subject)},
               after);
}

Collectives::Ticket Collectives::reduce_scatter(const void* input, void* output, size_t count,
                                                DType dtype, ReduceOp op, Stream& after,
                                                OperationSubject subject) {
  return issue({.kind = Kind::reduce_scatter,
                .dtype = dtype,
                .op = op,
                .input = input,
                .output = output,
                .count = count,
                .subject = std::move(subject)},
               after);
}

Collectives::Ticket Collectives::all_gather(const void* input, void* output, size_t count,
                                            DType dtype, Stream& after, OperationSubject subject) {
  return issue({.kind = Kind::all_gather,
                .dtype = dtype,
                .input = input,
                .output = output,
                .count = count,
                .subject = std::move(subject)},
               after);
}

Collectives::Ticket Collectives::broadcast(void* data, size_t count, DType dtype, int root,
                                           Stream& after, OperationSubject subject) {
  return issue({.kind = Kind::broadcast,
                .dtype = dtype,
                .root = root,
                .output = data,
                .count = count,
                .subject = std::move(subject)},
               after);
}

Collectives::Ticket Collectives::send(const void* data, size_t count, DType dtype, int to,
                                      Stream& after, OperationSubject subject) {
  return issue({.kind = Kind::send,
                .dtype = dtype,
                .peer = to,
                .input = data,
                .count = count,
                .subject = std::move(subject)},
               after);
}

Collectives::Ticket Collectives::receive(void* data, size_t count, DType dtype, int from,
                                         Stream& after, OperationSubject subject) {
  return issue({.kind = Kind::receive,
                .dtype = dtype,
                .peer = from,
                .output = data,
                .count = count,
                .subject = std::move(subject)},
               after);
}

Collectives::Ticket Collectives::issue(const CollectiveCall& call, Stream& after) {
  const char* error = error_in(call, rank(), size());
  if (error[0] != '\0') {
    fail(ExitCode::internal, "internal error: rank {} of {}: {}: {}", rank(), size(),
         describe(call), error);
  }
  return queue(call, after);
}

std::unique_ptr<Collectives> Collectives::split(std::span<const int> ranks) {
  fail(ExitCode::usage, "this group of ranks cannot be split into a group of {}", ranks.size());
}

}  // namespace dltrain

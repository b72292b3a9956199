// The collective operations of one process group, whatever carries them (nothing, Gloo, NCCL).
//
// The memory is that of the device whose streams the group is given: host memory with Gloo,
// the GPU's with comm/stream_collectives.h. (A HostStream will do for host memory.)
//
// Every operation begins after the work queued so far on `after` and returns a ticket at once;
// wait(ticket, before) makes later work on `before` wait for it. On the CPU the operations run in
// order on a thread of their own, so they overlap with compute. All ranks must issue the same
// operations in the same order (the Plan's order). Nothing is allocated after set-up.
//
// Errors: a lost, hung or mismatched peer throws Error(rank) from the operation's wait(), naming
// the peer where the transport knows it. After an error the group is dead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "device/device.h"
#include "tensor/dtype.h"

namespace dltrain {

enum class ReduceOp : uint8_t { sum, max };

class Collectives {
 public:
  using Ticket = uint64_t;

  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place: every rank ends with the reduction of all ranks' `data`. The order of the additions
  // depends only on the number of ranks and the count. f32, f64, i32, i64 (and bf16, f16 with f32
  // arithmetic).
  virtual Ticket all_reduce(void* data, size_t count, DType dtype, ReduceOp op, Stream& after) = 0;
  // `input` has size() * count elements; `output` receives this rank's reduced part.
  virtual Ticket reduce_scatter(const void* input, void* output, size_t count, DType dtype,
                                ReduceOp op, Stream& after) = 0;
  // `output` has size() * count elements in rank order.
  virtual Ticket all_gather(const void* input, void* output, size_t count, DType dtype,
                            Stream& after) = 0;
  virtual Ticket broadcast(void* data, size_t count, DType dtype, int root, Stream& after) = 0;
  // Both have size() * count elements; part i goes to rank i.
  virtual Ticket all_to_all(const void* input, void* output, size_t count, DType dtype,
                            Stream& after) = 0;
  virtual Ticket send(const void* data, size_t count, DType dtype, int to, Stream& after) = 0;
  virtual Ticket receive(void* data, size_t count, DType dtype, int from, Stream& after) = 0;

  virtual void wait(Ticket ticket, Stream& before) = 0;
  // Blocks the host until every rank has come here.
  virtual void barrier() = 0;

  // A group of some of these ranks: `ranks` in ascending order, this one among them. Asked of the
  // group of all ranks, at set-up; every rank calls it at the same place of its sequence, with the
  // ranks of its own new group, and the lists of two ranks are equal or have none in common (as
  // MPI_Comm_split and ncclCommSplit have it). In the new group ranks are counted from 0 in the
  // order of the list, and operations have an order of their own: they overlap with those of other
  // groups. It must end before this one; when one of them fails both are dead.
  virtual std::unique_ptr<Collectives> split(std::span<const int> ranks) {
    fail(ExitCode::usage, "these ranks have no group of {} of them", ranks.size());
  }
  // For groups whose wait() does not hold the host: throws Error(rank) when an operation has failed
  // since. Called where the host has waited for the device, before results are believed.
  virtual void check() {}
  // Gives the group up: what is under way ends with an error, here and on the peers. May be called
  // from any thread.
  virtual void abandon() {}
};

// One operation, as implementations hand it on.
enum class CollectiveKind : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  send,
  receive,
  barrier
};

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  int peer = 0;                 // root, destination or source
  const void* input = nullptr;  // nullptr: in place, in `output`
  void* output = nullptr;       // nullptr: of a send
  size_t count = 0;             // as in the methods above
};

// "all_reduce of 1000 f32", "send of 8 u8 to rank 2"
std::string describe(const CollectiveCall& call);
const char* collective_name(CollectiveKind kind);
inline bool is_message(CollectiveKind kind) {
  return kind == CollectiveKind::send || kind == CollectiveKind::receive;
}

}  // namespace dltrain

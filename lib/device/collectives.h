// The collective operations of one process group, independent of the transport (one process, TCP,
// NCCL).
//
// Buffers are in the memory of the device whose streams the group is given: host memory with
// comm/host_collectives.h, GPU memory with comm/stream_collectives.h. A HostStream is sufficient
// for host memory.
//
// Every operation starts after the work queued so far on `after` and returns a ticket at once;
// wait(ticket, before) makes later work on `before` wait for it. Operations therefore overlap with
// computation; on the CPU they run on a separate thread. Nothing is allocated after set-up.
//
// Guarantees and requirements on every backend:
//
// * Order. The operations of a rank are executed in the order in which the rank issues them; each
//   ends before the next one starts, and it may last until all other ranks have issued it. All
//   ranks of a group issue the same operations in the same order (the program's), with equal
//   counts, dtypes, reductions and roots. Groups made by split() count as one sequence with their
//   parent: over host memory their operations may overlap, on a GPU they do not.
// * Send and receive are operations of two ranks; the others issue nothing. The operations of each
//   rank must be its part of one sequence of all operations, otherwise ranks wait for each other:
//   of two ranks that exchange data, one sends first and the other receives first. A send may last
//   until the other rank receives.
// * Dtypes. Every dtype can be moved; is_reducible() lists those that can be reduced.
// * Memory. Until an operation has ended, its input must not change and its output must not be
//   accessed. The input of an all_gather and the output of a reduce_scatter may be this rank's part
//   of the other buffer; otherwise input and output must not overlap.
//
// Errors: invalid arguments (no such rank, a dtype that cannot be reduced) are a bug and throw
// Error(internal) when the operation is issued. A peer that is lost, hangs or issues a different
// operation throws Error(rank) from wait(), which names the peer if the transport knows it. After
// an error the group can no longer be used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/device.h"
#include "tensor/dtype.h"

namespace dltrain {

enum class ReduceOp : uint8_t { sum, max };

enum class CollectiveKind : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  send,
  receive,
  barrier
};

// The subject of an operation for error messages: "gradient of h.0.mlp.weight". Shared, because
// operations outlive the code that issues them. May be nullptr.
using OperationSubject = std::shared_ptr<const std::string>;

// The arguments of one operation.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;                 // of a broadcast
  int peer = 0;                 // the other rank of a send or receive
  const void* input = nullptr;  // nullptr: in place, in `output`
  void* output = nullptr;
  size_t count = 0;  // as in the methods of Collectives
  // all_to_all: rows of `row` elements, of which only the first sent_rows[r] of part r are sent,
  // and received_rows[r] of part r of the output arrive, the rest of which is then unspecified.
  // nullptr: whole parts. A backend may send whole parts all the same.
  const int32_t *sent_rows = nullptr, *received_rows = nullptr;
  size_t row = 0;
  OperationSubject subject = nullptr;

  size_t bytes() const { return count * dtype_size(dtype); }
  // Returns true if only this rank and `peer` take part.
  bool is_between_two() const {
    return kind == CollectiveKind::send || kind == CollectiveKind::receive;
  }
};

// "all_reduce"
const char* collective_name(CollectiveKind kind);
// "all_reduce of 1000 f32 (layers.3)", "send of 1000 f32 to rank 3 (layers.3)"
std::string describe(const CollectiveCall& call);

// The numbers of elements that an operation reads and writes on one rank.
struct CollectiveExtent {
  size_t input = 0, output = 0;
  bool in_place = false;  // input and output are the same memory
};
CollectiveExtent extent_of(const CollectiveCall& call, int rank, int size);

// Returns true for the dtypes of all_reduce and reduce_scatter: f32, f64, bf16, f16, i32, i64.
bool is_reducible(DType dtype);

class Collectives {
 public:
  using Ticket = uint64_t;

  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place: replaces `data` on every rank by the reduction over all ranks. The order of the
  // additions depends only on the number of ranks; bf16 and f16 are added in f32.
  Ticket all_reduce(void* data, size_t count, DType dtype, ReduceOp op, Stream& after,
                    OperationSubject subject = nullptr);
  // `input` has size() * count elements; `output` receives this rank's reduced part.
  Ticket reduce_scatter(const void* input, void* output, size_t count, DType dtype, ReduceOp op,
                        Stream& after, OperationSubject subject = nullptr);
  // `output` has size() * count elements in rank order.
  Ticket all_gather(const void* input, void* output, size_t count, DType dtype, Stream& after,
                    OperationSubject subject = nullptr);
  Ticket broadcast(void* data, size_t count, DType dtype, int root, Stream& after,
                   OperationSubject subject = nullptr);
  // Sends to, or receives from, one other rank of the group, which issues the opposite.
  Ticket send(const void* data, size_t count, DType dtype, int to, Stream& after,
              OperationSubject subject = nullptr);
  Ticket receive(void* data, size_t count, DType dtype, int from, Stream& after,
                 OperationSubject subject = nullptr);
  // Issues any of the operations above, or an all_to_all: input and output have size() parts of
  // `count` elements; part r of the input is sent to rank r, and part r of the output comes from
  // there. The kind must not be barrier.
  Ticket issue(const CollectiveCall& call, Stream& after);

  virtual void wait(Ticket ticket, Stream& before) = 0;
  // Blocks the host until every rank has called it.
  virtual void barrier() = 0;

  // Makes a group of some ranks. `ranks` is ascending and contains this rank. Call it on the group
  // of all ranks, during set-up. Every rank calls it at the same position of its sequence with the
  // ranks of its own new group; the lists of two ranks are equal or disjoint (as with
  // MPI_Comm_split and ncclCommSplit). Ranks of the new group are numbered from 0 in the order of
  // the list. The new group must be destroyed before this one; if one of them fails, both fail.
  virtual std::unique_ptr<Collectives> split(std::span<const int> ranks);
  // For groups whose wait() does not block the host: throws Error(rank) if an operation has failed.
  // Called after the host has waited for the device, before results are used.
  virtual void check() {}
  // Ends the operations in progress with an error, here and on the peers. Can be called from any
  // thread.
  virtual void abort() {}
  // Returns when no operation uses memory of this process any more. Operations that are not
  // complete are ended as by abort().
  virtual void settle() {}

 private:
  // Implements issue(); the arguments have been validated.
  virtual Ticket queue(const CollectiveCall& call, Stream& after) = 0;
};

}  // namespace dltrain

// The collective operations of one process group, whatever carries them (nothing, TCP, NCCL).
//
// The memory is that of the device whose streams the group is given: host memory with comm/gloo.h,
// the GPU's with comm/stream_collectives.h. (A HostStream will do for host memory.)
//
// Every operation begins after the work queued so far on `after` and returns a ticket at once;
// wait(ticket, before) makes later work on `before` wait for it. So operations overlap with
// compute: on the CPU they run on a thread of their own. Nothing is allocated after set-up.
//
// What holds on every backend, and all that may be relied on:
//
// * Order. A rank's operations take place in the order in which it issues them, messages too: one
//   is over before the next begins, and one may last until the other ranks concerned have come to
//   it. All ranks of a group issue the same collectives (all but messages) in the same order (the
//   Plan's), with the same counts, dtypes, reductions and roots. The groups that are split from
//   one whole count as one sequence here: over host memory their operations overlap, on a GPU they
//   take turns.
// * Messages (send, receive, exchange) from one rank to another are received in the order in which
//   they are sent, with the same number of bytes. A send is over when the receiver has its bytes.
//   So two ranks that send to each other and receive afterwards wait for ever, and so does a ring
//   of such ranks: they exchange. An exchange sends and receives as one operation. Its other ends
//   may be halves of exchanges, a send or a receive: it is over when both of its halves are.
// * Dtypes. Every dtype moves; those that is_reducible() takes are added up and compared.
// * Memory. Until an operation is over its input stays as it is and nobody touches its output. The
//   input of an all_gather and the output of a reduce_scatter may be this rank's place in the other
//   one; else the two do not overlap.
//
// Errors: what cannot be an operation (a rank that is none, a dtype that is not reduced) is a bug:
// Error(internal) when it is issued. A lost, hung or mismatched peer throws Error(rank) from the
// operation's wait(), naming the peer where the transport knows it. After an error the group is
// dead.
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
  broadcast,
  all_to_all,
  message,  // send, receive and exchange
  barrier
};

// What a call is about, for messages: "gradient.h.0.mlp.weight", "agreement on mistakes". Shared,
// since calls outlive those who issue them. nullptr: nothing is said.
using CallSubject = std::shared_ptr<const std::string>;

// One operation, as implementations get it.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;                 // of a broadcast
  const void* input = nullptr;  // nullptr: in place, in `output`
  void* output = nullptr;
  size_t count = 0;  // as in the methods below; of a message: that are sent
  // Of a message: to whom it goes and from whom one comes (−1: none), of so many elements.
  int to = -1, from = -1;
  size_t received = 0;
  CallSubject about = nullptr;

  bool sends() const { return to >= 0; }
  bool receives() const { return from >= 0; }
  size_t bytes() const { return count * dtype_size(dtype); }
  size_t received_bytes() const { return received * dtype_size(dtype); }
};

// "all_reduce", "send", "exchange"
const char* collective_name(const CollectiveCall& call);
// "all_reduce of 1000 f32", "send of 8 u8 to rank 2",
// "exchange of 8 u8 to rank 2 for 4 from rank 1 (layers.3)"
std::string describe(const CollectiveCall& call);

// What it reads and writes in a group of so many ranks, in elements.
struct CollectiveExtent {
  size_t input = 0, output = 0;
  bool in_place = false;  // both are the same memory
};
CollectiveExtent extent_of(const CollectiveCall& call, int rank, int size);

// Whether all_reduce and reduce_scatter take it: f32, f64, bf16, f16, i32, i64.
bool is_reducible(DType dtype);

class Collectives {
 public:
  using Ticket = uint64_t;

  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place: every rank ends with the reduction of all ranks' `data`. The order of the additions
  // depends only on the number of ranks and the count; bf16 and f16 are added in f32.
  Ticket all_reduce(void* data, size_t count, DType dtype, ReduceOp op, Stream& after,
                    CallSubject about = nullptr);
  // `input` has size() * count elements; `output` receives this rank's reduced part.
  Ticket reduce_scatter(const void* input, void* output, size_t count, DType dtype, ReduceOp op,
                        Stream& after, CallSubject about = nullptr);
  // `output` has size() * count elements in rank order.
  Ticket all_gather(const void* input, void* output, size_t count, DType dtype, Stream& after,
                    CallSubject about = nullptr);
  Ticket broadcast(void* data, size_t count, DType dtype, int root, Stream& after,
                   CallSubject about = nullptr);
  // Both have size() * count elements; part i goes to rank i.
  Ticket all_to_all(const void* input, void* output, size_t count, DType dtype, Stream& after);
  Ticket send(const void* data, size_t count, DType dtype, int to, Stream& after);
  Ticket receive(void* data, size_t count, DType dtype, int from, Stream& after);
  // Sends to one rank and receives from one, the same or another. With itself it is a copy: so a
  // ring may have one rank.
  struct Outgoing {
    const void* data;
    size_t count;
    int to;
  };
  struct Incoming {
    void* data;
    size_t count;
    int from;
  };
  Ticket exchange(const Outgoing& out, const Incoming& in, DType dtype, Stream& after);
  // Any of these as it is described; the methods above come to this. Not a barrier.
  Ticket issue(const CollectiveCall& call, Stream& after);

  virtual void wait(Ticket ticket, Stream& before) = 0;
  // Blocks the host until every rank has come here.
  virtual void barrier() = 0;

  // A group of some of these ranks: `ranks` in ascending order, this one among them. Asked of the
  // group of all ranks, at set-up; every rank calls it at the same place of its sequence, with the
  // ranks of its own new group, and the lists of two ranks are equal or have none in common (as
  // MPI_Comm_split and ncclCommSplit have it). In the new group ranks are counted from 0 in the
  // order of the list. It must end before this one; when one of them fails both are dead.
  virtual std::unique_ptr<Collectives> split(std::span<const int> ranks);
  // For groups whose wait() does not hold the host: throws Error(rank) when an operation has failed
  // since. Called where the host has waited for the device, before results are believed.
  virtual void check() {}
  // Gives the group up: what is under way ends with an error, here and on the peers. May be called
  // from any thread.
  virtual void abandon() {}

 private:
  // The one thing that implementations do: a call that can be one, of any kind but barrier.
  virtual Ticket queue(const CollectiveCall& call, Stream& after) = 0;
};

}  // namespace dltrain

// The collective algorithms over host memory: direct exchange between all pairs of ranks, and a
// tree for small messages of large groups.
//
// Every rank owns one contiguous chunk of the elements. all_reduce: every rank sends each chunk to
// its owner; the owner combines the parts of all ranks in rank order (reduce.h: one binary tree,
// the same for every element) and sends the result to all, segment by segment. For small counts
// every rank sends everything and combines the same tree. A result therefore depends only on the
// ranks' values, not on the count, the segments or the position of an element in a bucket, and it
// is the same on all ranks. Each rank sends as much as in a ring, 2 (N-1)/N of the data, in 2
// instead of 2 (N-1) hops.
//
// With more than kDirectRanks ranks, barriers and small messages (all that a run on many GPUs sends
// between hosts: agreements, checkpoints) take 2 log2 N hops along a binomial tree, in which a rank
// has at most log2 N + 1 neighbours. The parent of rank r is r without its lowest bit, so that the
// ranks below r follow it, and partial results are combined in the order of reduce.h.
//
// Memory: scratch_bytes(size), allocated at construction. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/peer_connections.h"
#include "device/collectives.h"
#include "tensor/dtype.h"

namespace dltrain {

class CollectiveAlgorithms {
 public:
  // Size of the segments that are combined at once. In large groups the segments of all ranks share
  // kScratchBytes, down to kMinSegmentBytes each.
  static constexpr size_t kSegmentBytes = 512 * 1024;
  static constexpr size_t kMinSegmentBytes = 64 * 1024;
  static constexpr size_t kScratchBytes = 4 * 1024 * 1024;
  static constexpr size_t kSmallBytes = 16 * 1024;  // up to here all_reduce takes one hop
  static constexpr int kDirectRanks = 32;
  // Up to this size of all parts together an all_gather of a large group follows the tree.
  static constexpr size_t kTreeGatherBytes = 4 * 1024 * 1024;

  explicit CollectiveAlgorithms(PeerConnections& connections);
  // The memory of a group of `size` ranks on each of them.
  static size_t scratch_bytes(int size);

  // The operations of device/collectives.h, blocking. `slot` is equal on all ranks, and no other
  // operation uses slot or slot + 1.
  void all_reduce(void* data, size_t count, DType dtype, ReduceOp op, uint64_t slot);
  void reduce_scatter(const void* input, void* output, size_t count, DType dtype, ReduceOp op,
                      uint64_t slot);
  void all_gather(const void* input, void* output, size_t bytes, uint64_t slot);
  void all_to_all(const CollectiveCall& call, uint64_t slot);
  void broadcast(void* data, size_t bytes, int root, uint64_t slot);
  // Sends to one rank, or receives from it; the other direction is empty.
  void send(const void* data, size_t bytes, int to, uint64_t slot);
  void receive(void* data, size_t bytes, int from, uint64_t slot);
  void barrier(uint64_t slot);

 private:
  struct Chunks;
  void all_reduce_small(void* data, size_t count, DType dtype, ReduceOp op, uint64_t slot);
  void reduce_chunks(const Chunks& chunks, std::byte* input, std::byte* output, DType dtype,
                     ReduceOp op, uint64_t slot, bool gather);
  bool uses_tree() const { return connections_.size() > kDirectRanks; }
  void all_reduce_tree(void* data, size_t count, DType dtype, ReduceOp op, uint64_t slot);
  void send_down(void* data, size_t bytes, int root, uint64_t slot);
  // Exchanges part_of(peer) with every other rank.
  template <typename PartOf>
  void exchange_all(uint64_t slot, const PartOf& part_of) {
    for (int i = 1; i < connections_.size(); ++i) {
      exchanges_[i - 1] = part_of((connections_.rank() + i) % connections_.size());
    }
    connections_.exchange(slot, exchanges_);
  }
  std::byte* scratch(int rank) {
    return scratch_.get() + static_cast<size_t>(rank) * segment_bytes_;
  }

  PeerConnections& connections_;
  size_t segment_bytes_;
  std::unique_ptr<std::byte[]> scratch_;  // [rank][segment]
  std::vector<const void*> parts_;        // [rank]
  std::vector<PeerExchange> exchanges_;
};

}  // namespace dltrain

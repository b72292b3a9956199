// The collective algorithms, by direct exchange between all pairs of ranks.
//
// Every rank owns one contiguous chunk of the elements. all_reduce: every rank sends each chunk to
// its owner, the owner combines the parts of all ranks in rank order (reduce.h: one binary tree,
// the same for every element) and sends the result to all, pipelined over segments. Small counts:
// everybody sends everything and combines the same tree. So a result depends on the ranks' values
// only, not on the count, the segments or the place of an element in a bucket; and it is the same
// on all ranks. The volume a rank sends is that of a ring, 2 (N-1)/N of the data, in 2 instead of 2
// (N-1) hops.
//
// Memory: scratch of kWindow * (size - 1) segments, taken at construction. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/transport.h"
#include "device/collectives.h"
#include "tensor/dtype.h"

namespace dltrain {

class Exchange {
 public:
  static constexpr size_t kSegmentBytes = 1024 * 1024;
  static constexpr size_t kWindow = 4;              // segments in flight
  static constexpr size_t kSmallBytes = 16 * 1024;  // up to here all_reduce takes one hop

  explicit Exchange(Transport& transport);

  // As in device/collectives.h, blocking. `slot` is the same on all ranks for one operation and
  // leaves slot + 1 unused by others.
  void all_reduce(void* data, size_t count, DType dtype, ReduceOp op, uint64_t slot);
  void reduce_scatter(const void* input, void* output, size_t count, DType dtype, ReduceOp op,
                      uint64_t slot);
  void all_gather(const void* input, void* output, size_t bytes, uint64_t slot);
  void broadcast(void* data, size_t bytes, int root, uint64_t slot);
  void all_to_all(const void* input, void* output, size_t bytes, uint64_t slot);
  void barrier(uint64_t slot);

 private:
  struct Chunks;
  struct Reduction;
  void all_reduce_small(void* data, size_t count, DType dtype, ReduceOp op, uint64_t slot);
  void reduce_chunk(const Reduction& r);
  int peer(int i) const { return (transport_.rank() + i) % transport_.size(); }
  Channel& scratch(size_t segment, int peer) {
    return *scratch_channels_[(segment % kWindow) * transport_.size() + peer];
  }
  std::byte* scratch_data(size_t segment, int peer) {
    return scratch_.data() + ((segment % kWindow) * transport_.size() + peer) * kSegmentBytes;
  }

  Transport& transport_;
  std::vector<std::byte> scratch_;
  std::vector<std::unique_ptr<Channel>> scratch_channels_;  // [window][peer]
  std::vector<const void*> parts_;                          // [rank]
};

}  // namespace dltrain

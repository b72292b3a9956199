// The collective algorithms, by direct exchange between all pairs of ranks.
//
// Every rank owns one contiguous chunk of the elements. all_reduce: every rank sends each chunk to
// its owner, the owner combines the parts of all ranks in rank order (reduce.h: one binary tree,
// the same for every element) and sends the result to all, segment by segment. Small counts:
// everybody sends everything and combines the same tree. So a result depends on the ranks' values
// only, not on the count, the segments or the place of an element in a bucket; and it is the same
// on all ranks. The volume a rank sends is that of a ring, 2 (N-1)/N of the data, in 2 instead of 2
// (N-1) hops.
//
// All are exchanges of letters (transport.h).
//
// Memory: scratch_bytes(size), taken at construction. Threads: one at a time.
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
  // The longest part that is combined at once; shorter in large groups, whose parts share
  // kScratchBytes while that leaves kLeastSegmentBytes.
  static constexpr size_t kSegmentBytes = 512 * 1024;
  static constexpr size_t kLeastSegmentBytes = 64 * 1024;
  static constexpr size_t kScratchBytes = 4 * 1024 * 1024;
  static constexpr size_t kSmallBytes = 16 * 1024;  // up to here all_reduce takes one hop

  explicit Exchange(Transport& transport);
  // What one group of so many ranks takes on each of them.
  static size_t scratch_bytes(int size);

  // As in device/collectives.h, blocking. `slot` is the same on all ranks for one operation, and
  // slot + 1 is of no other.
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
  void reduce_chunks(const Reduction& r);
  // One letter for every other rank, which `letter_for` writes.
  template <typename LetterFor>
  void swap_letters(uint64_t slot, const LetterFor& letter_for) {
    for (int i = 1; i < transport_.size(); ++i) letters_[i - 1] = letter_for(peer(i));
    transport_.exchange(slot, letters_);
  }
  int peer(int i) const { return (transport_.rank() + i) % transport_.size(); }
  std::byte* scratch(int rank) {
    return scratch_.get() + static_cast<size_t>(rank) * segment_bytes_;
  }

  Transport& transport_;
  size_t segment_bytes_;
  std::unique_ptr<std::byte[]> scratch_;  // [rank][segment]
  std::vector<const void*> parts_;        // [rank]
  std::vector<Letter> letters_;
};

}  // namespace dltrain

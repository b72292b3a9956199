#include "graph/memory_planner.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace dltrain {

namespace {

size_t aligned_bytes(const MemoryBlock& block) {
  return align_up(std::max<size_t>(block.bytes, 1));
}

class Region {
 public:
  explicit Region(size_t capacity) : capacity_(capacity) {}

  // Uses the smallest gap that fits, else the space after all blocks; false: there is no room.
  bool place(MemoryBlock& block) {
    const size_t bytes = aligned_bytes(block);
    size_t best = SIZE_MAX, best_gap = SIZE_MAX, cursor = 0;
    for (const MemoryBlock& other : placed_) {
      if (other.last < block.first || block.last < other.first) continue;
      if (other.offset > cursor) {
        const size_t gap = other.offset - cursor;
        if (gap >= bytes && gap < best_gap) {
          best = cursor;
          best_gap = gap;
        }
      }
      cursor = std::max(cursor, other.offset + aligned_bytes(other));
    }
    if (best == SIZE_MAX) best = cursor;
    if (best > capacity_ || bytes > capacity_ - best) return false;
    block.offset = best;
    add(block);
    return true;
  }

  void add(const MemoryBlock& block) {
    size_ = std::max(size_, block.offset + aligned_bytes(block));
    placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), block,
                                    [](const MemoryBlock& a, const MemoryBlock& b) {
                                      return a.offset < b.offset;
                                    }),
                   block);
  }

  size_t size() const { return size_; }

 private:
  size_t capacity_, size_ = 0;
  std::vector<MemoryBlock> placed_;  // by ascending offset
};

}  // namespace

size_t place_blocks(std::vector<MemoryBlock>& blocks, const ReusableRegion& reused) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  Region reusable(reused.bytes), own(SIZE_MAX);
  for (const MemoryBlock& block : reused.occupied) reusable.add(block);
  for (size_t index : order) {
    MemoryBlock& block = blocks[index];
    block.reused = reusable.place(block);
    if (!block.reused) own.place(block);
  }
  return own.size();
}

BusiestStep busiest_step(const std::vector<MemoryBlock>& blocks) {
  std::map<int, int64_t> change;
  for (const MemoryBlock& block : blocks) {
    if (block.reused) continue;
    const auto bytes = static_cast<int64_t>(aligned_bytes(block));
    change[block.first] += bytes;
    change[block.last + 1] -= bytes;
  }
  int64_t alive = 0, most = 0;
  BusiestStep out;
  for (const auto& [step, delta] : change) {
    alive += delta;
    if (alive <= most) continue;
    most = alive;
    out = {step, static_cast<size_t>(most)};
  }
  return out;
}

}  // namespace dltrain

#include "graph/memory_planner.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace dltrain {

namespace {

// Blocks that have a place. Most live for a few steps, so a block whose steps lie within one span
// of kSpan steps is compared with the blocks of that span only.
class Region {
 public:
  explicit Region(size_t capacity) : capacity_(capacity) {}

  // Uses the smallest gap that fits, else the space after all blocks; false: there is no room.
  bool place(MemoryBlock& block) {
    const size_t bytes = align_up(block.bytes), first = span_of(block.first);
    if (spans_.size() <= first) spans_.resize(first + 1);
    size_t best = SIZE_MAX, best_gap = SIZE_MAX, cursor = 0;
    for (const MemoryBlock& other : first == span_of(block.last) ? spans_[first] : placed_) {
      if (other.last < block.first || block.last < other.first) continue;
      if (other.offset > cursor) {
        const size_t gap = other.offset - cursor;
        if (gap >= bytes && gap < best_gap) {
          best = cursor;
          best_gap = gap;
        }
      }
      cursor = std::max(cursor, other.offset + align_up(other.bytes));
    }
    if (best == SIZE_MAX) best = cursor;
    if (best > capacity_ || bytes > capacity_ - best) return false;
    block.offset = best;
    add(block);
    return true;
  }

  void add(const MemoryBlock& block) {
    size_ = std::max(size_, block.offset + align_up(block.bytes));
    const auto [first, last] = std::minmax({span_of(block.first), span_of(block.last)});
    if (spans_.size() <= last) spans_.resize(last + 1);
    insert(placed_, block);
    for (size_t i = first; i <= last; ++i) insert(spans_[i], block);
  }

  size_t size() const { return size_; }

 private:
  static constexpr int kSpan = 64;
  static size_t span_of(int step) { return static_cast<size_t>(std::max(step, 0) / kSpan); }
  static void insert(std::vector<MemoryBlock>& blocks, const MemoryBlock& block) {
    blocks.insert(std::ranges::upper_bound(blocks, block.offset, {}, &MemoryBlock::offset), block);
  }

  size_t capacity_, size_ = 0;
  std::vector<MemoryBlock> placed_;              // by ascending offset
  std::vector<std::vector<MemoryBlock>> spans_;  // likewise, of each span of steps
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
    if (block.bytes == 0) break;  // they are last, and offset 0 is as good as any
    block.reused = reusable.place(block);
    if (!block.reused) own.place(block);
  }
  return own.size();
}

BusiestStep busiest_step(const std::vector<MemoryBlock>& blocks) {
  std::map<int, int64_t> change;
  for (const MemoryBlock& block : blocks) {
    if (block.reused) continue;
    const auto bytes = static_cast<int64_t>(align_up(block.bytes));
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

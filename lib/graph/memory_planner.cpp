#include "graph/memory_planner.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace dltrain {

size_t place_blocks(std::vector<MemoryBlock>& blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<size_t> placed;  // indices, by ascending offset
  size_t total = 0;
  for (size_t index : order) {
    MemoryBlock& block = blocks[index];
    const size_t bytes = align_up(std::max<size_t>(block.bytes, 1));
    size_t best = SIZE_MAX, best_gap = SIZE_MAX, cursor = 0;
    for (size_t other_index : placed) {
      const MemoryBlock& other = blocks[other_index];
      if (other.last < block.first || block.last < other.first) continue;
      if (other.offset > cursor) {
        const size_t gap = other.offset - cursor;
        if (gap >= bytes && gap < best_gap) {
          best = cursor;
          best_gap = gap;
        }
      }
      cursor = std::max(cursor, other.offset + align_up(std::max<size_t>(other.bytes, 1)));
    }
    block.offset = best == SIZE_MAX ? cursor : best;
    total = std::max(total, block.offset + bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), index,
                         [&](size_t a, size_t b) { return blocks[a].offset < blocks[b].offset; }),
        index);
  }
  return total;
}

size_t lower_bound_bytes(const std::vector<MemoryBlock>& blocks) {
  std::map<int, int64_t> change;
  for (const MemoryBlock& block : blocks) {
    const auto bytes = static_cast<int64_t>(align_up(std::max<size_t>(block.bytes, 1)));
    change[block.first] += bytes;
    change[block.last + 1] -= bytes;
  }
  int64_t alive = 0, most = 0;
  for (const auto& [time, delta] : change) {
    alive += delta;
    most = std::max(most, alive);
  }
  return static_cast<size_t>(most);
}

}  // namespace dltrain

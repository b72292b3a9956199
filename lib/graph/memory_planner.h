// Places blocks with known lifetimes into one region of memory, so that blocks that live at the
// same time never overlap. Greedy by size, best fit: within a few per cent of the lower bound on
// training graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dltrain {

struct MemoryBlock {
  size_t bytes = 0;
  int first = 0;  // first and last point in time (inclusive) at which it must hold its content
  int last = 0;
  size_t offset = 0;  // written by place_blocks, a multiple of kMemoryAlignment
  bool lent = false;  // likewise: the offset is one of the lent region
};

inline constexpr size_t kMemoryAlignment = 256;
constexpr size_t align_up(size_t bytes, size_t to = kMemoryAlignment) {
  return (bytes + to - 1) / to * to;
}

// Memory that exists anyway, such as state whose content is not needed for a while.
struct LentRegion {
  size_t bytes = 0;
  std::vector<MemoryBlock> taken = {};  // where and when its own content must stay
};

// Places what it can into `lent`, and the rest into a region of its own, whose size it returns.
size_t place_blocks(std::vector<MemoryBlock>& blocks, const LentRegion& lent = {});

// The most bytes alive at any one time outside lent memory (after alignment): no placement can need
// less.
size_t lower_bound_bytes(const std::vector<MemoryBlock>& blocks);

}  // namespace dltrain

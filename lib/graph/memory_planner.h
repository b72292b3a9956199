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
  int first = 0;  // first and last step (inclusive) at which its content must be intact
  int last = 0;
  size_t offset = 0;    // written by place_blocks, a multiple of kMemoryAlignment
  bool reused = false;  // written by place_blocks: the offset refers to the reused region
  bool shared = false;  // the offset refers to memory that frames share (graph/program.h)
  int piece = 0;        // it refers to this piece of a frame (MemoryPlace)
};

inline constexpr size_t kMemoryAlignment = 256;
constexpr size_t align_up(size_t bytes, size_t to = kMemoryAlignment) {
  return (bytes + to - 1) / to * to;
}

// Existing memory that can be reused, such as state whose content is temporarily not needed.
struct ReusableRegion {
  size_t bytes = 0;
  // The regions and times in which its own content must stay intact.
  std::vector<MemoryBlock> occupied = {};
};

// Places blocks into `reused` where they fit, the rest into a new region; returns the region's
// size.
size_t place_blocks(std::vector<MemoryBlock>& blocks, const ReusableRegion& reused = {});

// The first step with the most live bytes outside reused memory (aligned), which are a lower bound
// of any placement.
struct BusiestStep {
  int step = -1;  // none: there are no blocks
  size_t bytes = 0;
};
BusiestStep busiest_step(const std::vector<MemoryBlock>& blocks);

}  // namespace dltrain

#include "graph/memory_planner.h"

#include "base/philox.h"
#include "catch.h"
#include "examples.h"
#include "run_graph.h"

namespace dltrain {
namespace {

uint32_t draw(uint64_t seed, uint64_t& at, uint32_t below) {
  return random_bits(seed, random_stream("blocks"), 0, at++) % below;
}

std::vector<MemoryBlock> random_blocks(uint64_t seed) {
  uint64_t at = 0;
  std::vector<MemoryBlock> blocks(1 + draw(seed, at, 60));
  for (MemoryBlock& block : blocks) {
    block.bytes = draw(seed, at, draw(seed, at, 4) == 0 ? 100'000 : 3'000);
    block.first = static_cast<int>(draw(seed, at, 40));
    block.last = block.first + static_cast<int>(draw(seed, at, draw(seed, at, 5) == 0 ? 40 : 4));
  }
  return blocks;
}

int count_overlaps(const std::vector<MemoryBlock>& blocks) {
  int overlaps = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const MemoryBlock& a = blocks[i];
    for (size_t k = 0; k < i; ++k) {
      const MemoryBlock& b = blocks[k];
      const bool together = a.reused == b.reused && a.first <= b.last && b.first <= a.last;
      overlaps += together && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
    }
  }
  return overlaps;
}

TEST_CASE("blocks that live at the same time never overlap") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    auto blocks = random_blocks(seed);
    const size_t total = place_blocks(blocks);
    int outside = 0, misaligned = 0;
    for (const MemoryBlock& block : blocks) {
      outside += block.reused || block.offset + block.bytes > total;
      misaligned += block.offset % kMemoryAlignment != 0;
    }
    CHECK(count_overlaps(blocks) == 0);
    CHECK(outside == 0);
    CHECK(misaligned == 0);
    CHECK(total >= busiest_step(blocks).bytes);
  }
}

TEST_CASE("lent memory is used where and when it is free, and the rest needs no more than before") {
  int reused_blocks = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    auto blocks = random_blocks(seed);
    auto without = blocks;
    // Pieces side by side, each with content of its own before and after some time.
    uint64_t at = 1000;
    ReusableRegion reused;
    for (int piece = 0; piece < 8; ++piece) {
      MemoryBlock own{.bytes = 1 + draw(seed, at, 20'000), .first = -1, .offset = reused.bytes};
      own.last = static_cast<int>(draw(seed, at, 30));
      reused.bytes += align_up(own.bytes);
      reused.occupied.push_back(own);
      own.first = own.last + 1 + static_cast<int>(draw(seed, at, 40));
      own.last = 100;
      reused.occupied.push_back(own);
    }
    const size_t total = place_blocks(blocks, reused);
    int outside = 0;
    auto all = blocks;
    for (const MemoryBlock& block : blocks) {
      outside += block.offset + block.bytes > (block.reused ? reused.bytes : total);
      reused_blocks += block.reused;
    }
    for (MemoryBlock own : reused.occupied) {
      own.reused = true;
      all.push_back(own);
    }
    CHECK(count_overlaps(all) == 0);
    CHECK(outside == 0);
    CHECK(total >= busiest_step(blocks).bytes);
    CHECK(busiest_step(blocks).bytes <= busiest_step(without).bytes);
  }
  CHECK(reused_blocks > 1000);
}

TEST_CASE("the lower bound is the greatest sum of bytes alive at one time") {
  std::vector<MemoryBlock> blocks{{.bytes = 256, .first = 0, .last = 2},
                                  {.bytes = 300, .first = 2, .last = 3},  // 512 when aligned
                                  {.bytes = 512, .first = 4, .last = 5}};
  CHECK(busiest_step(blocks).bytes == 768);
  CHECK(place_blocks(blocks) == 768);
  CHECK(busiest_step({}).bytes == 0);
}

TEST_CASE("training graphs need at most a tenth more than the lower bound") {
  for (const Graph& graph :
       {mlp_step(128, {784, 512, 256, 10}), mlp_step(7, {64, 33, 100, 29, 10}),
        mlp_step(32, std::vector<int64_t>(20, 96)), convnet_step(64), convnet_step(3)}) {
    const std::unique_ptr<Device> device = reference_engine().open(0);
    const Program program(graph, {.engine = &reference_engine(), .device = device.get()});
    CHECK(program.work_bytes() >= program.work_lower_bound());
    CHECK(static_cast<double>(program.work_bytes()) <=
          1.1 * static_cast<double>(program.work_lower_bound()));
  }
}

}  // namespace
}  // namespace dltrain

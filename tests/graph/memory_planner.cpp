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

TEST_CASE("blocks that live at the same time never overlap") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    auto blocks = random_blocks(seed);
    const size_t total = place_blocks(blocks);
    int overlaps = 0, outside = 0, misaligned = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const MemoryBlock& a = blocks[i];
      outside += a.offset + a.bytes > total;
      misaligned += a.offset % kMemoryAlignment != 0;
      for (size_t k = 0; k < i; ++k) {
        const MemoryBlock& b = blocks[k];
        const bool together = a.first <= b.last && b.first <= a.last;
        overlaps += together && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      }
    }
    CHECK(overlaps == 0);
    CHECK(outside == 0);
    CHECK(misaligned == 0);
    CHECK(total >= lower_bound_bytes(blocks));
  }
}

TEST_CASE("the lower bound is the greatest sum of bytes alive at one time") {
  std::vector<MemoryBlock> blocks{{.bytes = 256, .first = 0, .last = 2},
                                  {.bytes = 300, .first = 2, .last = 3},  // 512 when aligned
                                  {.bytes = 512, .first = 4, .last = 5}};
  CHECK(lower_bound_bytes(blocks) == 768);
  CHECK(place_blocks(blocks) == 768);
  CHECK(lower_bound_bytes({}) == 0);
}

TEST_CASE("training graphs need at most a tenth more than the lower bound") {
  for (const Graph& graph :
       {mlp_step(128, {784, 512, 256, 10}), mlp_step(7, {64, 33, 100, 29, 10}),
        mlp_step(32, std::vector<int64_t>(20, 96)), convnet_step(64), convnet_step(3)}) {
    const std::unique_ptr<Device> device = reference_engine().open(0);
    const Plan plan = Plan::prepare(graph, {.engine = &reference_engine(), .device = device.get()});
    CHECK(plan.work_bytes() >= plan.work_lower_bound());
    CHECK(static_cast<double>(plan.work_bytes()) <=
          1.1 * static_cast<double>(plan.work_lower_bound()));
  }
}

}  // namespace
}  // namespace dltrain

// Shards of tensors that are cut over ranks.
#include "graph/placement.h"

#include <numeric>

#include "catch.h"
#include "ops/rules.h"

using namespace dltrain;

TEST_CASE("the shards of the ranks put together are the tensor, whether or not they are equal") {
  const TensorSpec whole{Shape{5, 7, 3}, DType::f32};
  std::vector<float> values(static_cast<size_t>(whole.shape.elements()));
  std::iota(values.begin(), values.end(), 1.0f);
  for (int dimension : {0, 1, 2}) {
    for (int ranks : {1, 2, 3}) {
      INFO("dimension " << dimension << " over " << ranks);
      const int64_t extent = whole.shape[dimension];
      CutParts packed = even_cut(3, ranks);
      packed.push_back(even_cut(extent - 3, ranks).front());
      for (const CutParts& parts : {even_cut(extent, ranks), packed}) {
        if (!is_possible(parts, ranks)) continue;
        const Cut cut{
            .axis = "tensor", .dimension = dimension, .ranks = ranks, .rank = 0, .parts = parts};
        std::vector<float> together(values.size(), 0.0f);
        int64_t elements = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          std::vector<float> contents(static_cast<size_t>(cut.local(whole.shape, rank).elements()));
          copy_from_cut(whole, cut, rank, std::as_bytes(std::span(values)),
                        std::as_writable_bytes(std::span(contents)));
          const int64_t at =
              cut_ranges(parts, rank).front().offset * whole.shape.elements(dimension + 1, 3);
          CHECK(contents.front() == values[static_cast<size_t>(at)]);
          copy_to_cut(whole, cut, rank, std::as_bytes(std::span(contents)),
                      std::as_writable_bytes(std::span(together)));
          elements += std::ssize(contents);
        }
        CHECK(together == values);
        CHECK(elements == whole.shape.elements());
      }
    }
  }
}

TEST_CASE("a dimension is cut only if every rank gets a part of it") {
  const auto fits = [](int64_t extent, int ranks) {
    return is_possible(even_cut(extent, ranks), ranks);
  };
  CHECK(fits(65, 2));
  CHECK(fits(50257, 8));
  CHECK(fits(4, 4));
  CHECK_FALSE(fits(3, 4));
  CHECK_FALSE(fits(5, 4));  // 2, 2, 1 and none
  Cut cut{.axis = "tensor", .dimension = 0, .ranks = 2, .rank = 1, .parts = even_cut(65, 2)};
  CHECK(cut.local(Shape{65, 8}) == Shape{32, 8});
  // 3 heads of 4 elements, and their keys and values: one head is not divided.
  cut.parts = {{12, 8}, {12, 8}, {12, 8}};
  CHECK(cut.local(Shape{36, 8}) == Shape{12, 8});
  CHECK(cut_ranges(cut.parts, 1)[2].offset == 32);
}

TEST_CASE("a change of shape keeps shards that are ranges of a dimension") {
  const Shape joined{2, 5, 36}, heads{2, 5, 9, 4};
  const Placement packed{Placement::sharded, 2, {{12, 8}, {12, 8}, {12, 8}}};
  const Placement by_heads{Placement::sharded, 2, {{3, 2}, {3, 2}, {3, 2}}};
  CHECK(reshaped(packed, joined, heads) == by_heads);
  CHECK(reshaped(by_heads, heads, joined) == packed);
  CHECK(reshaped({Placement::sharded, 2, even_cut(36, 7)}, joined, heads) == kReplicated);
  CHECK(reshaped({Placement::sharded, 3, even_cut(4, 2)}, heads, joined) == kReplicated);
}

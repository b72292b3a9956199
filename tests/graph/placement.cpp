// Boxes of tensors that are cut over ranks.
#include "graph/placement.h"

#include <numeric>

#include "catch.h"

using namespace dltrain;

TEST_CASE("the boxes of the ranks put together are the tensor, whether or not they are equal") {
  const TensorSpec whole{Shape{5, 7, 3}, DType::f32};
  std::vector<float> values(static_cast<size_t>(whole.shape.elements()));
  std::iota(values.begin(), values.end(), 1.0f);
  for (int dimension : {0, 1, 2}) {
    for (int ranks : {1, 2, 3}) {
      INFO("dimension " << dimension << " over " << ranks);
      const Cut cut{.axis = "tensor", .dimension = dimension, .ranks = ranks, .rank = 0};
      std::vector<float> together(values.size(), 0.0f);
      int64_t elements = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const TensorBox box = cut.box(whole.shape, rank);
        std::vector<float> contents(static_cast<size_t>(box.extent.elements()));
        copy_from_box(whole, box, std::as_bytes(std::span(values)),
                      std::as_writable_bytes(std::span(contents)));
        const int64_t at = (box.offset[0] * 7 + box.offset[1]) * 3 + box.offset[2];
        CHECK(contents.front() == values[static_cast<size_t>(at)]);
        copy_to_box(whole, box, std::as_bytes(std::span(contents)),
                    std::as_writable_bytes(std::span(together)));
        elements += box.extent.elements();
      }
      CHECK(together == values);
      CHECK(elements == whole.shape.elements());
    }
  }
}

TEST_CASE("a dimension is cut only if every rank gets a part of it") {
  CHECK(Cut::is_possible(65, 2));
  CHECK(Cut::is_possible(50257, 8));
  CHECK(Cut::is_possible(4, 4));
  CHECK_FALSE(Cut::is_possible(3, 4));
  CHECK_FALSE(Cut::is_possible(5, 4));  // 2, 2, 1 and none
  const Cut cut{.axis = "tensor", .dimension = 0, .ranks = 2, .rank = 1};
  CHECK(cut.local(Shape{65, 8}) == Shape{32, 8});
}

#include "tensor/shape.h"

#include "base/error.h"
#include "catch.h"

using namespace dltrain;

TEST_CASE("a shape counts its elements and prints like a list") {
  const Shape shape{2, 3, 4};
  CHECK(shape.elements() == 24);
  CHECK(shape.elements(1, 3) == 12);
  CHECK(shape[-1] == 4);
  CHECK(to_string(shape) == "[2, 3, 4]");
  CHECK(Shape{}.elements() == 1);
  CHECK(to_string(TensorSpec{shape, DType::bf16}) == "bf16[2, 3, 4]");
}

TEST_CASE("shapes of unequal rank differ") {
  CHECK(Shape{2, 3} == Shape{2, 3});
  CHECK_FALSE(Shape{2, 3} == Shape{2, 3, 1});
  CHECK_THROWS_AS((Shape{-1}), Error);
}

#include "nn/layer.h"

#include "base/error.h"

namespace dltrain {

void expect_vectors(const Shape& shape) {
  if (shape.rank() == 2) return;
  fail(ExitCode::usage, "expects a vector a sample, got {}; put a flatten layer before it",
       to_string(shape));
}

void expect_images(const Shape& shape) {
  if (shape.rank() == 4) return;
  fail(ExitCode::usage,
       "expects images [samples, height, width, channels], got {}; give the data a shape of three "
       "extents, and no flatten layer before this one",
       to_string(shape));
}

void expect_tokens(const Shape& shape) {
  if (shape.rank() == 3) return;
  fail(ExitCode::usage, "expects tokens [samples, tokens, width], got {}", to_string(shape));
}

}  // namespace dltrain

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
       "expects images [samples, height, width, channels], got {}; put reshape: {} before this "
       "layer, and flatten layers after it",
       to_string(shape),
       shape.rank() == 3 ? fmt::format("[{}, {}, 1]", shape[1], shape[2])
                         : "[height, width, channels]");
}

void expect_tokens(const Shape& shape) {
  if (shape.rank() == 3) return;
  fail(ExitCode::usage, "expects tokens [samples, tokens, width], got {}", to_string(shape));
}

}  // namespace dltrain

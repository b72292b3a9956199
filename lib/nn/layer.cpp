#include "nn/layer.h"

#include "base/error.h"

namespace dltrain {

ValueId LayerContext::parameter(const std::string& name, const Shape& memory,
                                const Initializer& initializer) {
  return add(Role::parameter, name, memory, initializer, {memory, {}});
}

ValueId LayerContext::parameter(const std::string& name, const Shape& memory,
                                const Initializer& initializer, FileLayout file) {
  return add(Role::parameter, name, memory, initializer, std::move(file));
}

ValueId LayerContext::buffer(const std::string& name, const Shape& memory,
                             const Initializer& initializer) {
  return add(Role::buffer, name, memory, initializer, {memory, {}});
}

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

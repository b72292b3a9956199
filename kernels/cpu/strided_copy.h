// The axes of a box of elements that has one set of strides in one tensor and another set in a
// second one. Axes are merged where both strides allow it.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/shape.h"

namespace dltrain {

// Returns the strides, in elements, of a dense tensor of `shape`, outermost first.
std::vector<int64_t> dense_strides(const Shape& shape);

class StridedBox {
 public:
  struct Axis {
    int64_t extent, from, to;  // strides of both sides
  };

  // One entry per axis, outermost first.
  StridedBox(const std::vector<int64_t>& extents, const std::vector<int64_t>& from_strides,
             const std::vector<int64_t>& to_strides);

  // Merged axes, innermost first, without axes of extent 1; never empty.
  const std::vector<Axis>& axes() const { return axes_; }

 private:
  std::vector<Axis> axes_;
};

// Copies a box whose innermost axis is dense on both sides, row by row, over the threads.
class StridedCopy {
 public:
  StridedCopy(const StridedBox& box, size_t element_bytes);

  // Both sides begin at the first element of the box.
  void run(const void* from, void* to) const;

 private:
  int64_t row_bytes_, rows_ = 1;
  std::vector<StridedBox::Axis> outer_;  // in bytes
};

}  // namespace dltrain

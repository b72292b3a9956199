// Iterates over an output tensor and the operands that are broadcast to it: merges axes where
// possible, and yields rows along the innermost merged axis.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "tensor/shape.h"

namespace dltrain {

class BroadcastLoop {
 public:
  static constexpr size_t kMaxOperands = 2;

  // `operands` (at most 2) are broadcastable to `output` as numpy does.
  BroadcastLoop(const Shape& output, std::span<const Shape> operands);

  int64_t rows() const { return rows_; }
  int64_t row_length() const { return length_; }
  // Returns true if the operand has one value for a row; otherwise it is dense along the row.
  bool one_value(size_t operand) const { return inner_stride_[operand] == 0; }
  // Returns the offset of the operand's first element of a row, in elements.
  int64_t offset(size_t operand, int64_t row) const {
    int64_t out = 0;
    for (const Axis& axis : axes_) {
      out += row % axis.extent * axis.strides[operand];
      row /= axis.extent;
    }
    return out;
  }

 private:
  struct Axis {
    int64_t extent;
    std::array<int64_t, kMaxOperands> strides;
  };
  std::vector<Axis> axes_;  // all but the innermost, innermost first
  int64_t rows_ = 1, length_ = 1;
  std::array<int64_t, kMaxOperands> inner_stride_{};
};

}  // namespace dltrain

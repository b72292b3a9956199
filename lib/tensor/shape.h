// Shape: the extents of a dense row-major tensor, outermost first. A small value type (no heap).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace dltrain {

class Shape {
 public:
  static constexpr int kMaxRank = 6;
  static constexpr int64_t kMaxElements = int64_t{1} << 46;  // far more than any machine holds

  Shape() = default;  // rank 0: a scalar, one element
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  // Throws Error(internal) for more than kMaxRank dimensions or a negative extent, Error(memory)
  // for more than kMaxElements elements.
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  // Negative axes count from the end: shape[-1] is the innermost extent.
  int64_t operator[](int axis) const { return dims_[axis < 0 ? axis + rank_ : axis]; }
  int64_t& operator[](int axis) { return dims_[axis < 0 ? axis + rank_ : axis]; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  std::vector<int64_t> list() const { return {begin(), end()}; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }

  // Number of elements; 1 for rank 0.
  int64_t elements() const;
  // Product of the extents of axes [first, last).
  int64_t elements(int first, int last) const;

  bool operator==(const Shape& other) const;

  // Throws Error(memory) naming the shape when it has more than kMaxElements elements; for shapes
  // that were changed in place. No product overflows before this was called.
  void check_size() const;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// "[128, 784]"
std::string to_string(const Shape& shape);

// The description of a tensor in a graph.
struct TensorSpec {
  Shape shape;
  DType dtype = DType::f32;

  size_t bytes() const { return static_cast<size_t>(shape.elements()) * dtype_size(dtype); }
  bool operator==(const TensorSpec&) const = default;
};

// "f32[128, 784]"
std::string to_string(const TensorSpec& spec);

}  // namespace dltrain

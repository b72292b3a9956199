// How values and stored tensors are laid out over the ranks.
//
// A value has one placement (ops/op.h) for each axis of the mesh; axes that are not listed
// replicate it. A rank of a sharded dimension has one range of it, all of equal length but the
// last, which may be shorter: nothing is padded except in messages.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace dltrain {

struct AxisPlacement {
  std::string axis;
  Placement placement;
  bool operator==(const AxisPlacement&) const = default;
};
using Layout = std::vector<AxisPlacement>;

// A box of a tensor.
struct TensorBox {
  Shape offset, extent;
};

// A dimension that is cut over the ranks of an axis.
struct Cut {
  std::string axis;
  int dimension = 0;
  int ranks = 1, rank = 0;

  // Returns whether every rank gets a part of the dimension.
  static bool is_possible(int64_t extent, int ranks);
  // The box of `whole` that a rank has.
  TensorBox box(const Shape& whole, int of_rank) const;
  Shape local(const Shape& whole) const { return box(whole, rank).extent; }
};

// A range of the elements of a tensor, for ZeRO (passes/zero.h): tensors lie one after another in a
// unit, of which each rank along the axis `shard` stores `length` elements.
struct FlatCut {
  int64_t first = 0;  // element of the unit at which the tensor begins
  int64_t length = 0;
  int rank = 0;

  // Elements [begin, begin + count) of the tensor, which may be none, are at element `at` of what
  // the rank stores of the unit.
  struct Range {
    int64_t begin = 0, count = 0, at = 0;
  };
  Range range(int64_t elements) const;
};

// A shard is the part of a tensor that this rank stores: the box of its cut, and with `flat` only a
// range of the elements of this box. Files have whole tensors.
struct Shard {
  TensorSpec whole;
  std::optional<Cut> cut = {};  // none: the box is the whole tensor
  std::optional<FlatCut> flat = {};
  // In a pipeline: the stage that saves the tensor, and whether the stage of this rank stores it.
  int stage = 0;
  bool is_here = true;

  TensorSpec box() const { return {cut ? cut->local(whole.shape) : whole.shape, whole.dtype}; }
  // The elements of the box that are stored, and those as a tensor.
  FlatCut::Range range() const;
  TensorSpec stored() const;
};

// Copies a box between a tensor and contiguous memory.
void copy_from_box(const TensorSpec& whole, const TensorBox& box, std::span<const std::byte> tensor,
                   std::span<std::byte> contents);
void copy_to_box(const TensorSpec& whole, const TensorBox& box, std::span<const std::byte> contents,
                 std::span<std::byte> tensor);

}  // namespace dltrain

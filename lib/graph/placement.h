// Describes how values and stored tensors are laid out over the ranks.
//
// A value has one placement (ops/placement.h) for each axis of the mesh; axes that are not listed
// replicate it. A rank of a sharded dimension has one range of it, or of each part of it if it is
// packed (queries, keys and values). Ranges have equal lengths except those of the last rank, which
// may be shorter: nothing is padded except in messages.
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

// A dimension that is cut over the ranks of an axis.
struct Cut {
  std::string axis;
  int dimension = 0;
  int ranks = 1, rank = 0;
  CutParts parts = {};  // of the dimension

  // The shape of a rank's shard.
  Shape local(const Shape& whole, int of_rank) const;
  Shape local(const Shape& whole) const { return local(whole, rank); }
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

// A shard is the part of a tensor that this rank stores: its ranges of the cut dimension, one after
// another (the box), and with `flat` only a range of the elements of this box. Files have whole
// tensors.
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

// Copies the shard of a rank between a tensor and memory of its own.
void copy_from_cut(const TensorSpec& whole, const Cut& cut, int rank,
                   std::span<const std::byte> tensor, std::span<std::byte> shard);
void copy_to_cut(const TensorSpec& whole, const Cut& cut, int rank,
                 std::span<const std::byte> shard, std::span<std::byte> tensor);

}  // namespace dltrain

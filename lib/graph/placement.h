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

#include "graph/role.h"
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

// The part of a tensor of the model (or of the optimizer) that this rank stores: the box of its
// cut, and if ZeRO shards this local tensor too, a range of its elements. Files have whole tensors.
struct Shard {
  std::string name, owner, kind;  // see StateTensor
  TensorSpec whole;
  Role role = Role::parameter;
  ValueId value = kNoValue;     // the state that contains it
  std::optional<Cut> cut = {};  // none: the local tensor is the whole one
  // Elements [begin, begin + count) of the local tensor, which may be none, are at element `at` of
  // the value. The local tensor begins at element `first` of its unit (passes/zero.h).
  int64_t begin = 0, count = 0, at = 0, first = 0;

  TensorSpec local() const { return {cut ? cut->local(whole.shape) : whole.shape, whole.dtype}; }
};

// Copies a box between a tensor and contiguous memory.
void copy_from_box(const TensorSpec& whole, const TensorBox& box, std::span<const std::byte> tensor,
                   std::span<std::byte> contents);
void copy_to_box(const TensorSpec& whole, const TensorBox& box, std::span<const std::byte> contents,
                 std::span<std::byte> tensor);

}  // namespace dltrain

// Positions of the elements of a shard in the whole tensor, for ops whose results depend on them
// (OpDef::localize). Without attributes the tensor is whole.
#pragma once

#include "base/host_device.h"
#include "ops/attributes.h"

namespace dltrain {

struct ShardPosition {
  // `row` adjacent elements of the shard are adjacent in the whole tensor, in whose rows of
  // `whole_row` elements they begin at `offset`.
  int64_t row, whole_row, offset;

  ShardPosition(const Attributes& attributes, int64_t elements)
      : row(attributes.integer("shard_row", elements > 0 ? elements : 1)),
        whole_row(attributes.integer("whole_row", row)),
        offset(attributes.integer("shard_offset")) {}

  DLTRAIN_HD int64_t operator()(int64_t element) const {
    return element / row * whole_row + offset + element % row;
  }
  // Returns how many elements of the whole tensor as many of the shard stand for.
  int64_t whole(int64_t elements) const {
    return row == whole_row ? elements : elements / row * whole_row;
  }

  static void set(Attributes& attributes, int64_t row, int64_t whole_row, int64_t offset) {
    attributes.set("shard_row", row);
    attributes.set("whole_row", whole_row);
    attributes.set("shard_offset", offset);
  }
};

}  // namespace dltrain

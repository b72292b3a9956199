// Positions of the elements of a shard in the whole tensor, for ops whose results depend on them
// (OpDef::localize, OpDef::localize_tokens). Without attributes the tensor is whole.
#pragma once

#include "base/host_device.h"
#include "ops/attributes.h"
#include "ops/token_runs.h"

namespace dltrain {

struct ShardPosition {
  // `row` adjacent elements of the shard are adjacent in the tensor with the tokens of the rank, in
  // whose rows of `whole_row` elements they begin at `offset`.
  int64_t row, whole_row, offset;
  int64_t token_size;  // elements of a token in that tensor; 0: it has all tokens
  TokenPositions tokens;

  ShardPosition(const Attributes& attributes, int64_t elements)
      : row(attributes.integer("shard_row", elements > 0 ? elements : 1)),
        whole_row(attributes.integer("whole_row", row)),
        offset(attributes.integer("shard_offset")),
        token_size(attributes.integer("token_size")),
        tokens(attributes) {}

  DLTRAIN_HD int64_t operator()(int64_t element) const {
    const int64_t at = element / row * whole_row + offset + element % row;
    if (token_size == 0) return at;
    const int64_t token = at / token_size;
    return (token / tokens.local * tokens.all + tokens(token % tokens.local)) * token_size +
           at % token_size;
  }
  // Returns how many elements of the whole tensor as many of the shard stand for.
  int64_t whole(int64_t elements) const {
    const int64_t all = row == whole_row ? elements : elements / row * whole_row;
    return token_size == 0 ? all : all / tokens.local * tokens.all;
  }
  // From a multiple of this number on, as many elements are adjacent in the whole tensor.
  int64_t adjacent() const {
    const int64_t run = tokens.run * token_size;
    return token_size == 0 || row < run ? row : run;
  }
  // Returns whether a tensor of so many elements is whole.
  DLTRAIN_HD bool is_whole(int64_t elements) const {
    return row == elements && offset == 0 && token_size == 0;
  }

  static void set(Attributes& attributes, int64_t row, int64_t whole_row, int64_t offset) {
    attributes.set("shard_row", row);
    attributes.set("whole_row", whole_row);
    attributes.set("shard_offset", offset);
  }
};

}  // namespace dltrain

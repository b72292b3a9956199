// The shards that all_gather (ops/placement.cpp) puts together.
#pragma once

#include "ops/op.h"

namespace dltrain {

// Its attribute `parts`: extent and length of each part.
CutParts gathered_parts(const Attributes& attributes);
void set_gathered_parts(Attributes& attributes, const CutParts& parts);

// Emits these ranges of a dimension of x, one after another.
ValueId emit_ranges(OpEmitter& emitter, ValueId x, int dimension, std::span<const CutRange> ranges);
inline ValueId emit_range(OpEmitter& emitter, ValueId x, int dimension, const CutRange& range) {
  return emit_ranges(emitter, x, dimension, {&range, 1});
}

}  // namespace dltrain

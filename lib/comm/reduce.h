// The arithmetic of reductions on the host: combines the parts of several ranks element by element.
#pragma once

#include <cstddef>
#include <span>

#include "device/collectives.h"
#include "tensor/dtype.h"

namespace dltrain {

// output[i] = parts[0][i] op parts[1][i] op …, combined as a binary tree over neighbouring parts,
// ((0 1) (2 3)) ((4 5) 6): the order depends on the number of parts only, never on i or on how a
// tensor was divided into pieces. For the dtypes of is_reducible(). bf16 and f16 are combined in
// f32 and rounded once (nearest even). Integer sums wrap. A maximum with a NaN is NaN. `output` may
// be one of the parts. Nothing is allocated.
void reduce_parts(std::span<const void* const> parts, void* output, size_t count, DType dtype,
                  ReduceOp op);

// The dtype in which elements are combined: f32 for bf16 and f16.
DType accumulator_dtype(DType dtype);
// Converts elements of a dtype to its accumulator_dtype(), or back.
void convert_parts(const void* from, DType from_dtype, void* to, DType to_dtype, size_t count);

}  // namespace dltrain

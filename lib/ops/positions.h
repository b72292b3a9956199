// Angles of positional encodings, for kernels.
#pragma once

#include <vector>

#include "ops/op.h"
#include "ops/token_runs.h"

namespace dltrain {

// Returns for each pair i of a head's elements the rotation per token in radians: theta^(−2i/dim),
// in double, modified by the attribute `scaling` (ops/positions.cpp). `dim`: rotary_dim().
std::vector<double> rotary_frequencies(const Attributes& attributes, int64_t dim);

// Returns the number of elements of each head that are rotated.
int64_t rotary_dim(const TensorSpec& x, const Attributes& attributes);

// Returns element `channel` of the encoding of `position` (Vaswani et al. 2017, §3.5): sines and
// cosines of position / 10000^(2i/width) in turn.
double sinusoid(int64_t position, int64_t channel, int64_t width);

}  // namespace dltrain

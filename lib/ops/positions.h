// The angles by which tokens know their place, for kernels.
#pragma once

#include <vector>

#include "ops/op.h"

namespace dltrain {

// The radians by which pair i of a head's elements turns from token to token: theta^(−2i/dim), in
// double, changed by the attribute `scaling` (ops/positions.cpp). `dim`: elements that turn.
std::vector<double> rotary_frequencies(const Attributes& attributes, int64_t dim);

// How many elements of each head turn.
int64_t rotary_dim(const TensorSpec& x, const Attributes& attributes);

// Element `channel` of the vector of place `position` (Vaswani et al. 2017, §3.5): sines and
// cosines of position / 10000^(2i/width) in turn.
double sinusoid(int64_t position, int64_t channel, int64_t width);

}  // namespace dltrain

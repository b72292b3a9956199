// Normally distributed numbers, a pure function of (seed, stream, step, number of the element).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>

#include "base/philox.h"

namespace dltrain {

// Element `index` of N(0, 1), by Box and Muller (1958) from the random bits 2·index and
// 2·index + 1 (base/philox.h), for host and device code.
DLTRAIN_HD double normal_value(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index) {
  const Philox4 bits = random_block(seed, stream, step, index / 2);
  const uint32_t first = (index & 1) != 0 ? bits.v[2] : bits.v[0];
  const uint32_t second = (index & 1) != 0 ? bits.v[3] : bits.v[1];
  // 1 − u keeps the logarithm finite.
  const double radius = 1.0 - static_cast<double>(uniform_from_bits(first));
  const double angle = 2 * std::numbers::pi * static_cast<double>(uniform_from_bits(second));
  return std::sqrt(-2.0 * std::log(radius)) * std::cos(angle);
}

// Fills `out` with elements [first, first + out.size()) of N(mean, deviation²), those of
// normal_value. It computes in f64 in the calling thread. `first` is even.
void normal_values(uint64_t seed, uint64_t stream, uint64_t step, uint64_t first, double deviation,
                   double mean, std::span<float> out);

}  // namespace dltrain

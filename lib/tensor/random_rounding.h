// Stochastic rounding of f32 to bf16, for parameters without f32 masters. Host and device code
// share this file.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "tensor/low_precision.h"

namespace dltrain {

// Rounds to one of the two neighbours in bf16, away from zero with the probability of the truncated
// part, so that the expected value is exact. `random` has 32 random bits, of which the upper 16 are
// used. Exact values, infinities and NaN do not change.
DLTRAIN_HD Bf16 round_at_random(float x, uint32_t random) {
  const auto bits = bits_as<uint32_t>(x);
  const bool special = (bits & 0x7F800000u) == 0x7F800000u;
  const uint32_t nan = (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x400000u : 0u;
  return {static_cast<uint16_t>((special ? bits | nan : bits + (random >> 16)) >> 16)};
}

}  // namespace dltrain

// Normally distributed numbers, a pure function of (seed, stream, number of the element).
#pragma once

#include <cstdint>
#include <span>

namespace dltrain {

// Fills `out` with elements [first, first + out.size()) of N(mean, deviation²), by Box and Muller
// (1958) from the random bits 2·i and 2·i + 1 (base/philox.h). It computes in f64 in the calling
// thread. `first` is even.
void normal_values(uint64_t seed, uint64_t stream, uint64_t first, double deviation, double mean,
                   std::span<float> out);

}  // namespace dltrain

// The Sobol sequence (Sobol 1967) with the direction numbers of Joe & Kuo 2008
// (new-joe-kuo-6.21201), in the order of Antonov & Saleev: point i belongs to the Gray code of i.
#pragma once

#include <cstdint>

namespace dltrain {

inline constexpr int kSobolDimensions = 24;

// Returns coordinate `dimension` of point `index` as a multiple of 2^-30, less than 2^30. Both are
// not negative; dimension < kSobolDimensions, index < 2^30.
uint32_t sobol(int64_t index, int dimension);

}  // namespace dltrain

// Indices and sums of the ops in lib/ops/expert_places.cpp.
#pragma once

#include <cstdint>

namespace dltrain {

inline constexpr int32_t kNoRow = -1;
inline constexpr int32_t kOverflowRow = -2;

// The number of bins in which place_rows tells what buffer it needed; 0 for one owner.
int64_t needed_bins(int64_t owners);

}  // namespace dltrain

// The choice of experts of one token, shared by engines (lib/ops/experts.cpp).
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace dltrain {

// Writes the indices of the k greatest of `experts` probabilities, the greatest first; of equal
// ones the first. Always writes k different indices, also with NaN.
template <typename T>
DLTRAIN_HD void choose_experts(const T* probabilities, int64_t experts, int64_t k,
                               int32_t* chosen) {
  for (int64_t j = 0; j < k; ++j) {
    int32_t best = -1;
    for (int32_t e = 0; e < experts; ++e) {
      bool taken = false;
      for (int64_t i = 0; i < j; ++i) taken = taken || chosen[i] == e;
      if (!taken && (best < 0 || probabilities[e] > probabilities[best])) best = e;
    }
    chosen[j] = best;
  }
}

}  // namespace dltrain

// Shared by the parts of the kernel of matmul with independent rows.
#pragma once

#include <cstdint>

namespace dltrain {

// y [m, n] = a·wᵀ with a [m, k] in f32 and w [n, k].
struct RowsCall {
  const float* a;
  const void* w;
  float* y;
  int64_t m, k, n;
};

// Computes columns [begin, end) of y.
using RowsFunction = void (*)(const RowsCall& call, int64_t begin, int64_t end);

}  // namespace dltrain

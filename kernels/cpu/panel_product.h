// C += Aᵀ·B where A [k, rows] and B [k, columns] are lists of rows: the product of a weight
// gradient, with k over pixels. For processors with AVX-512 (bf16: AVX512_BF16); each call runs in
// the calling thread.
//
// A chunk of k is copied into two panels that stay in the caches. A step of k is one row in f32; in
// bf16 two interleaved rows, as VDPBF16PS needs them, so a panel has 32 bits per element in both
// cases. While a product runs, rows of the next chunk are prefetched: with few channels loading
// them takes nearly as long as multiplying them.
#pragma once

#include <cstdint>

#include "tensor/shape.h"

namespace dltrain {

inline constexpr int64_t kPanelSteps = 256;   // most steps of k in a panel
inline constexpr int64_t kPanelColumns = 64;  // most columns of B in a panel

// Distance between steps of a left panel; not a power of two, with which steps would conflict in
// few cache sets.
constexpr int64_t left_panel_stride(int64_t rows) {
  return (rows + 15) / 16 * 16 + 16;
}

// Rows to prefetch meanwhile: `lines` cache lines of each, from byte `first` on.
struct PanelPrefetch {
  const void* const* rows = nullptr;  // as many as the product has steps, times rows_a_step
  int64_t first = 0;
  int64_t lines = 0;  // 0: nothing
};

struct PanelProduct {
  const float *left, *right;
  int64_t left_stride, right_stride;
  int64_t steps, rows, columns;  // columns: a multiple of 16, at most kPanelColumns
  float* c;
  int64_t ldc;
  bool add;                   // to C
  PanelPrefetch prefetch[2];  // one line is prefetched per six rows of C
};

struct PanelFunctions {
  int64_t rows_a_step;  // of A and B: 1 (f32) or 2 (bf16)
  // Copies `count` elements from element `first` on of each row; an incomplete step is padded with
  // zeros.
  void (*pack)(const void* const* rows, int64_t row_count, int64_t first, int64_t count,
               float* panel, int64_t stride);
  void (*multiply)(const PanelProduct& product);
};

// Returns nullptr if the processor does not support it.
const PanelFunctions* panel_functions(DType dtype);

}  // namespace dltrain

// C += Aᵀ·B where A [k, rows] and B [k, columns] come as lists of rows: the product of a weight
// gradient, whose k runs over pixels. For processors with AVX-512 (bf16: AVX512_BF16); each call
// runs in the calling thread.
//
// A chunk of k is copied into two panels that stay in the caches. A step of k is one row in f32; in
// bf16 two rows lie interleaved, as VDPBF16PS wants them, so a panel holds 32 bits an element
// either way. While a product runs, rows of the next chunk are fetched: with few channels they come
// from memory nearly as slowly as they are multiplied.
#pragma once

#include <cstdint>

#include "tensor/shape.h"

namespace dltrain {

inline constexpr int64_t kPanelSteps = 256;   // of k, the most in a panel
inline constexpr int64_t kPanelColumns = 64;  // of B in a panel, the most

// Values from one step of a left panel to the next; not a power of two, whose steps would share few
// lines of the cache.
constexpr int64_t left_panel_stride(int64_t rows) {
  return (rows + 15) / 16 * 16 + 16;
}

// Rows to fetch meanwhile: `lines` cache lines of each, from byte `first` on.
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
  PanelPrefetch prefetch[2];  // every six rows of C have time for one line
};

struct PanelFunctions {
  int64_t rows_a_step;  // of A and B: 1 (f32) or 2 (bf16)
  // Copies `count` elements from element `first` on of each row; what is missing to a whole step is
  // zero.
  void (*pack)(const void* const* rows, int64_t row_count, int64_t first, int64_t count,
               float* panel, int64_t stride);
  void (*multiply)(const PanelProduct& product);
};

// nullptr where the processor cannot.
const PanelFunctions* panel_functions(DType dtype);

}  // namespace dltrain

// Matrix products by packed panels, f32 or bf16 with f32 sums, for processors with AVX-512: the
// work of one thread. matmul_panels.cpp implements the entire product.
//
// Both factors are copied into panels of 32-bit words along the inner axis, each one f32 or two
// bf16 (where a product of bf16 is slower, one bf16 widened to f32): the left one in groups of 16
// rows [words, 16], the right one in panels of 48 columns [words, 48]. A tile of 8 rows by 48
// columns keeps 24 vectors of sums in registers.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace dltrain {

inline constexpr int64_t kMatmulRows = 16;     // of a group of the left factor: a vector
inline constexpr int64_t kMatmulColumns = 48;  // of a panel of the right factor

// A factor in memory: `outer` vectors along the inner axis.
struct MatmulFactor {
  const void* data = nullptr;
  int64_t stride = 0;       // elements, from row to row in memory
  bool inner_rows = false;  // a row in memory is one vector; otherwise a column is
  int64_t outer = 0, inner = 0;
};

// The part of a factor to copy: words [first_word, first_word + words) of 16 · groups vectors from
// vector `first` on. Word w of vector 16·g + i is copied to to[w·step_stride + g·group_stride + i].
struct MatmulPack {
  int64_t first_word, words, first, groups;
  float* to;
  int64_t group_stride, step_stride;
};

// Memory to prefetch while a panel is multiplied: `rows` times `row_bytes`, `stride` apart.
struct MatmulFetch {
  const char* data = nullptr;
  int64_t rows = 0, row_bytes = 0, stride = 0;
};

// Rows [0, rows) of one panel of columns.
struct MatmulPanel {
  const float *left, *right;  // groups of 16 rows, and the panel
  int64_t words, rows, columns;
  float* sums;  // f32, start of the panel; may be nullptr if `low` is written and `add` is false
  int64_t sums_stride;
  bool add;           // to `sums`
  const float* bias;  // of the panel's columns; nullptr: none
  void* low;          // bf16, start of the panel; nullptr: the result is written to `sums`
  int64_t low_stride;
  MatmulFetch fetch;
};

struct MatmulFunctions {
  int64_t elements_a_word, element_bytes;
  // Vectors and elements beyond the factor are zero.
  void (*pack)(const MatmulFactor& factor, const MatmulPack& what);
  void (*multiply)(const MatmulPanel& panel);
};

// Returns nullptr if the processor does not support it. With `bf16_pairs` a word has two bf16, and
// multiply() needs AVX512_BF16; otherwise a word is one bf16, widened.
const MatmulFunctions* matmul_functions(DType dtype, bool bf16_pairs);

}  // namespace dltrain

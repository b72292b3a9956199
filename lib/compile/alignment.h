// The extents of matrix products against what tensor cores and multiprocessors like: misaligned
// axes, and tiles that do not fill the GPU (NVIDIA, "Matrix Multiplication Background User's
// Guide": tensor core requirements, tile and wave quantization).
#pragma once

#include <string>
#include <vector>

#include "compile/gpu.h"
#include "graph/graph.h"

namespace dltrain {

// An axis of a product (or of a convolution) of the forward. Rows of memory that are no multiple of
// 16 bytes keep products from tensor cores or slow them; widths above 128 that are no multiple of
// 64, and rows of a batch likewise, leave parts of tiles empty.
struct MisalignedAxis {
  std::string layer;      // the first with this axis
  int layers = 1;         // with the same axis
  std::string_view axis;  // "rows", "inputs" or "outputs"
  int64_t extent = 0;
  DType dtype = DType::f32;
  int64_t multiple = 0;     // the least that the axis lacks: 16 bytes, or 64
  bool vocabulary = false;  // logits, which model.pad_vocab_to pads
};

// Returns the axes in the order of the graph, those without 16 bytes first.
std::vector<MisalignedAxis> misaligned_axes(const Graph& graph);

// The first of them as a sentence, with the number of others; "" if there is none, or the
// arithmetic is not in 16 bits.
std::string describe_misalignment(const Graph& graph, DType compute);

// Calls of one product, whose result is cut into tiles of 128 by 128. A multiprocessor computes a
// tile at a time, so the tiles are computed in waves, of which the last may leave some idle.
struct ProductTiles {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::f32;
  int count = 0;
  double seconds = 0;  // of all calls, by the cost model
  int64_t tiles = 0;
  double waves = 0;  // tiles by multiprocessors
  double full = 0;   // the share of the waves' tiles that is part of the result
};

// Returns the products of a micro-step, the longest first.
std::vector<ProductTiles> product_tiles(const Graph& graph, const Gpu& gpu);

}  // namespace dltrain

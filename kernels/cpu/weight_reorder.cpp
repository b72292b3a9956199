#include "cpu/weight_reorder.h"

#include <algorithm>

#include "cpu/matmul_tiles.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

namespace dltrain {
namespace {

using Tag = dnnl::memory::format_tag;

// oneDNN's names list the axes a (O), b (I), c, d of the blocks from the outermost on, then the
// layout within a block. In bf16 two elements of the product's inner axis are adjacent.
struct Layout {
  Tag f32, bf16;
  int64_t panel_rows;
  bool input_major;
};
constexpr Layout kLayouts[] = {
    {Tag::Acdb16a, Tag::AcdB16a2b, 16, false},     {Tag::Acdb32a, Tag::AcdB32a2b, 32, false},
    {Tag::Acdb48a, Tag::AcdB48a2b, 48, false},     {Tag::Acdb64a, Tag::AcdB64a2b, 64, false},
    {Tag::ABcd16a16b, Tag::ABcd8a16b2a, 0, false}, {Tag::BAcd16a16b, Tag::BAcd8a16b2a, 0, true}};

constexpr int64_t kTile = 16;
constexpr int64_t kWeightReorderChunkWords = 256;  // words of a panel per copy of a thread

// Copies to panels [words, panel_rows] of the matrix [O, H·W·I].
WeightReorder to_panels(const Shape& w, int64_t panel_rows, const MatmulFunctions& functions) {
  const int64_t out = w[0], inner = w[1] * w[2] * w[3], words = inner / functions.elements_a_word;
  const int64_t chunks = ceil_div(words, kWeightReorderChunkWords);
  return [=, &functions](const void* weight, void* to) {
    const MatmulFactor rows{
        .data = weight, .stride = inner, .inner_rows = true, .outer = out, .inner = inner};
    parallel_each(ceil_div(out, panel_rows) * chunks, 1, [&](int64_t unit) {
      const int64_t panel = unit / chunks, first = unit % chunks * kWeightReorderChunkWords;
      functions.pack(rows, {.first_word = first,
                            .words = std::min(kWeightReorderChunkWords, words - first),
                            .first = panel * panel_rows,
                            .groups = panel_rows / kMatmulRows,
                            .to = static_cast<float*>(to) + (panel * words + first) * panel_rows,
                            .group_stride = kMatmulRows,
                            .step_stride = panel_rows});
    });
  };
}

// Copies to tiles of 16 O by 16 I, in which O is the slower axis.
WeightReorder to_tiles(const Shape& w, bool input_major, const MatmulFunctions& functions) {
  const int64_t out = w[0], kernel_size = w[1] * w[2], in = w[3];
  const int64_t tile_words = kTile / functions.elements_a_word;  // of O
  const int64_t tile = tile_words * kTile, out_tiles = out / kTile, in_tiles = in / kTile;
  const int64_t element = static_cast<int64_t>(sizeof(float)) / functions.elements_a_word;
  return [=, &functions](const void* weight, void* to) {
    parallel_each(out_tiles * kernel_size, 1, [&](int64_t unit) {
      const int64_t o = unit / kernel_size, tap = unit % kernel_size;
      const MatmulFactor across{.data = static_cast<const std::byte*>(weight) + tap * in * element,
                                .stride = kernel_size * in,
                                .inner_rows = false,
                                .outer = in,
                                .inner = out};
      const int64_t before = input_major ? o : o * in_tiles;
      functions.pack(across, {.first_word = o * tile_words,
                              .words = tile_words,
                              .first = 0,
                              .groups = in_tiles,
                              .to = static_cast<float*>(to) + (before * kernel_size + tap) * tile,
                              .group_stride = (input_major ? out_tiles : 1) * kernel_size * tile,
                              .step_stride = kTile});
    });
  };
}

}  // namespace

WeightReorder find_weight_reorder(const TensorSpec& weight, const dnnl::memory::desc& layout) {
  const MatmulFunctions* functions = matmul_functions(weight.dtype, true);
  if (functions == nullptr) return nullptr;
  const Shape& w = weight.shape;
  const bool bf16 = weight.dtype == DType::bf16;
  const bool whole_tiles = w[0] % kTile == 0 && w[3] % kTile == 0;
  for (const Layout& known : kLayouts) {
    const dnnl::memory::desc expected(
        {w[0], w[3], w[1], w[2]},
        bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32,
        bf16 ? known.bf16 : known.f32);
    if (expected != layout) continue;
    if (known.panel_rows > 0 ? w[3] % 2 != 0 : !whole_tiles) return nullptr;
    return known.panel_rows > 0 ? to_panels(w, known.panel_rows, *functions)
                                : to_tiles(w, known.input_major, *functions);
  }
  return nullptr;
}

}  // namespace dltrain

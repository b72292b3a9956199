#include "cpu/weight_reorder.h"

#include <algorithm>

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

}  // namespace

std::optional<WeightReorder> WeightReorder::find(const TensorSpec& weight,
                                                 const dnnl::memory::desc& layout) {
  const MatmulFunctions* functions = matmul_functions(weight.dtype);
  if (functions == nullptr) return std::nullopt;
  const Shape& w = weight.shape;
  const bool bf16 = weight.dtype == DType::bf16;
  const bool whole_tiles = w[0] % kTile == 0 && w[3] % kTile == 0;
  for (const Layout& known : kLayouts) {
    const dnnl::memory::desc expected(
        {w[0], w[3], w[1], w[2]},
        bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32,
        bf16 ? known.bf16 : known.f32);
    if (expected != layout) continue;
    if (known.panel_rows > 0 ? w[3] % 2 != 0 : !whole_tiles) return std::nullopt;
    return WeightReorder(weight, known.panel_rows, known.input_major, *functions);
  }
  return std::nullopt;
}

WeightReorder::WeightReorder(const TensorSpec& weight, int64_t panel_rows, bool input_major,
                             const MatmulFunctions& functions)
    : out_(weight.shape[0]),
      kernel_size_(weight.shape[1] * weight.shape[2]),
      in_(weight.shape[3]),
      panel_rows_(panel_rows),
      input_major_(input_major),
      functions_(&functions) {}

void WeightReorder::run(const void* weight, void* to) const {
  auto* words = static_cast<float*>(to);
  panel_rows_ > 0 ? run_panels(weight, words) : run_tiles(weight, words);
}

// Copies to panels [words, panel_rows] of the matrix [O, H·W·I].
void WeightReorder::run_panels(const void* weight, float* to) const {
  const int64_t inner = kernel_size_ * in_, words = inner / functions_->elements_a_word;
  const int64_t chunks = ceil_div(words, kWeightReorderChunkWords);
  const MatmulFactor rows{
      .data = weight, .stride = inner, .inner_rows = true, .outer = out_, .inner = inner};
  parallel_for(ceil_div(out_, panel_rows_) * chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t panel = unit / chunks, first = unit % chunks * kWeightReorderChunkWords;
      functions_->pack(rows, {.first_word = first,
                              .words = std::min(kWeightReorderChunkWords, words - first),
                              .first = panel * panel_rows_,
                              .groups = panel_rows_ / kMatmulRows,
                              .to = to + (panel * words + first) * panel_rows_,
                              .group_stride = kMatmulRows,
                              .step_stride = panel_rows_});
    }
  });
}

// Copies to tiles of 16 O by 16 I, in which O is the slower axis.
void WeightReorder::run_tiles(const void* weight, float* to) const {
  const int64_t tile_words = kTile / functions_->elements_a_word;  // of O
  const int64_t tile = tile_words * kTile, out_tiles = out_ / kTile, in_tiles = in_ / kTile;
  const int64_t element = static_cast<int64_t>(sizeof(float)) / functions_->elements_a_word;
  parallel_for(out_tiles * kernel_size_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t out = unit / kernel_size_, tap = unit % kernel_size_;
      const MatmulFactor across{.data = static_cast<const std::byte*>(weight) + tap * in_ * element,
                                .stride = kernel_size_ * in_,
                                .inner_rows = false,
                                .outer = in_,
                                .inner = out_};
      const int64_t before = input_major_ ? out : out * in_tiles;
      functions_->pack(across,
                       {.first_word = out * tile_words,
                        .words = tile_words,
                        .first = 0,
                        .groups = in_tiles,
                        .to = to + (before * kernel_size_ + tap) * tile,
                        .group_stride = (input_major_ ? out_tiles : 1) * kernel_size_ * tile,
                        .step_stride = kTile});
    }
  });
}

}  // namespace dltrain

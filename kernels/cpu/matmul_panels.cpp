// matmul by packed panels (matmul_tiles.h). A block of the left factor stays in a core's L2 cache
// while panels of the right factor are multiplied with it. With few rows the block is the entire
// left factor, which the threads pack together; each then packs its own panels, and prefetches the
// next one while it multiplies. With many rows the threads pack a chunk of the right factor
// together, and each then packs its own blocks of rows. Every element is summed in a fixed order,
// independent of the number of threads.
#include <algorithm>

#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/matmul_tiles.h"
#include "cpu/onednn.h"
#include "cpu/parallel.h"
#include "cpu/processor.h"
#include "cpu/support.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int64_t kBlockWords = 128 * 1024;               // block of the left factor: 512 KiB
constexpr int64_t kMatmulPanelsChunkWords = 1024 * 1024;  // chunk of the right factor: 4 MiB
constexpr int64_t kFewRows = 512, kMaxInner = 512;        // rows and words of a block
constexpr int64_t kSumFloats = 2 * 1024 * 1024;           // sums of a 16-bit result: 8 MiB
constexpr int64_t kGroups = 8;                            // groups of rows packed together
constexpr int64_t kPanelGroups = kMatmulColumns / kMatmulRows;
constexpr int64_t kMatmulPanelsMaxRows = 2048;
constexpr int64_t kAliasedStride = 512, kAliasedFrom = 2048;  // elements of f32
constexpr int64_t kMinRows = 32, kMinColumns = 48, kMinInner = 64;

struct Sizes {
  MatmulFactor a, b;  // a: rows, b: columns
  int64_t rows, columns, inner;
};

Sizes sizes_of(const KernelRequest& r) {
  const Shape &a = r.inputs[0].shape, &b = r.inputs[1].shape;
  const int64_t leading = a.elements(0, a.rank() - 1), last = a[-1];
  const bool ta = r.attributes.boolean("transpose_a"), tb = r.attributes.boolean("transpose_b");
  Sizes s;
  s.rows = ta ? last : leading;
  s.inner = ta ? leading : last;
  s.columns = tb ? b[0] : b[1];
  s.a = {.stride = last, .inner_rows = !ta, .outer = s.rows, .inner = s.inner};
  s.b = {.stride = b[1], .inner_rows = tb, .outer = s.columns, .inner = s.inner};
  return s;
}

class MatmulPanels {
 public:
  MatmulPanels(const KernelRequest& r, const Sizes& sizes, const MatmulFunctions& functions)
      : s_(sizes),
        functions_(functions),
        accumulate_(r.accumulate),
        low_(r.outputs[0].dtype != DType::f32),
        parts_(product_threads(sizes.rows, sizes.inner, sizes.columns)) {
    if (r.inputs.size() == 3 && !is_absent(r.inputs[2])) {
      widen_bias_ = widen_function(r.inputs[2].dtype);
    }
    const int64_t words = ceil_div(s_.inner, functions.elements_a_word);
    few_rows_ = s_.rows <= kFewRows;
    const int64_t most_words =
        few_rows_ ? std::max<int64_t>(kBlockWords / s_.rows, kMaxInner / 2) : kMaxInner;
    blocks_ = ceil_div(words, std::min(most_words, 2 * kMaxInner));
    block_words_ = ceil_div(words, blocks_);
    last_words_ = words - (blocks_ - 1) * block_words_;
    const int64_t row_blocks =
        few_rows_ ? 1 : ceil_div(ceil_div(s_.rows, kBlockWords / block_words_), parts_) * parts_;
    block_rows_ = ceil_div(ceil_div(s_.rows, row_blocks), kMatmulRows) * kMatmulRows;
    panels_ = ceil_div(s_.columns, kMatmulColumns);
    const int64_t most_panels =
        std::max<int64_t>(1, kMatmulPanelsChunkWords / kMatmulColumns / block_words_);
    chunk_panels_ = few_rows_ ? panels_ : std::min(panels_, most_panels);
    if (few_rows_ && sums_apart()) {
      chunk_panels_ = std::clamp(kSumFloats / (s_.rows * kMatmulColumns), int64_t{1}, panels_);
    }
  }

  size_t workspace_bytes() const {
    return static_cast<size_t>(left_floats() + right_floats() + bias_floats() + sums_floats()) *
           sizeof(float);
  }

  void run(const Bindings& b) {
    s_.a.data = b.inputs[0];
    s_.b.data = b.inputs[1];
    left_ = static_cast<float*>(b.workspace);
    right_ = left_ + left_floats();
    bias_ = right_ + right_floats();
    sums_ = low_ ? bias_ + bias_floats() : static_cast<float*>(b.outputs[0]);
    out_ = b.outputs[0];
    const UsedThreads used(static_cast<int>(parts_));
    if (widen_bias_ != nullptr) widen_bias_(b.inputs[2], bias_, s_.columns);
    few_rows_ ? run_few_rows() : run_many_rows();
  }

 private:
  int64_t left_floats() const { return (few_rows_ ? 1 : parts_) * block_rows_ * block_words_; }
  int64_t panel_floats() const { return block_words_ * kMatmulColumns; }
  int64_t right_floats() const { return (few_rows_ ? parts_ : chunk_panels_) * panel_floats(); }
  int64_t bias_floats() const { return widen_bias_ != nullptr ? s_.columns : 0; }
  // Sums of 16-bit results over several blocks of the inner axis are kept in the workspace, for a
  // chunk of columns at a time.
  bool sums_apart() const { return low_ && blocks_ > 1; }
  int64_t sums_stride() const { return sums_apart() ? chunk_panels_ * kMatmulColumns : s_.columns; }
  int64_t sums_floats() const { return sums_apart() ? s_.rows * sums_stride() : 0; }
  int64_t words(int64_t block) const { return block + 1 == blocks_ ? last_words_ : block_words_; }

  void run_few_rows() const {
    const int64_t groups = ceil_div(s_.rows, kMatmulRows);
    for (int64_t chunk = 0; chunk < panels_; chunk += chunk_panels_) {
      const int64_t panels = std::min(chunk_panels_, panels_ - chunk);
      for (int64_t block = 0; block < blocks_; ++block) {
        parallel_for(groups, 1, [&](int64_t begin, int64_t end) {
          pack_left(block, begin * kMatmulRows, end - begin,
                    left_ + begin * kMatmulRows * words(block));
        });
        parallel_parts(panels, parts_, [&](int64_t begin, int64_t end, int64_t part) {
          float* right = right_ + part * panel_floats();
          for (int64_t p = begin; p < end; ++p) {
            pack_right(block, chunk + p, right);
            multiply(block, 0, s_.rows, chunk, p, left_, right,
                     p + 1 < end ? fetch(block, chunk + p + 1) : MatmulFetch{});
          }
        });
      }
    }
  }

  void run_many_rows() const {
    const int64_t row_blocks = ceil_div(s_.rows, block_rows_);
    for (int64_t chunk = 0; chunk < panels_; chunk += chunk_panels_) {
      const int64_t panels = std::min(chunk_panels_, panels_ - chunk);
      for (int64_t block = 0; block < blocks_; ++block) {
        parallel_each(panels, 1, [&](int64_t p) {
          pack_right(block, chunk + p, right_ + p * panel_floats());
        });
        parallel_parts(row_blocks, parts_, [&](int64_t begin, int64_t end, int64_t part) {
          float* left = left_ + part * block_rows_ * block_words_;
          for (int64_t r = begin; r < end; ++r) {
            const int64_t row = r * block_rows_, rows = std::min(block_rows_, s_.rows - row);
            pack_left(block, row, ceil_div(rows, kMatmulRows), left);
            for (int64_t p = 0; p < panels; ++p) {
              multiply(block, row, rows, chunk, p, left, right_ + p * panel_floats(), {});
            }
          }
        });
      }
    }
  }

  void pack_left(int64_t block, int64_t row, int64_t groups, float* to) const {
    const int64_t stride = kMatmulRows * words(block);
    for (int64_t g = 0; g < groups; g += kGroups) {
      functions_.pack(s_.a, {.first_word = block * block_words_,
                             .words = words(block),
                             .first = row + g * kMatmulRows,
                             .groups = std::min(kGroups, groups - g),
                             .to = to + g * stride,
                             .group_stride = stride,
                             .step_stride = kMatmulRows});
    }
  }

  void pack_right(int64_t block, int64_t panel, float* to) const {
    functions_.pack(s_.b, {.first_word = block * block_words_,
                           .words = words(block),
                           .first = panel * kMatmulColumns,
                           .groups = kPanelGroups,
                           .to = to,
                           .group_stride = kMatmulRows,
                           .step_stride = kMatmulColumns});
  }

  // Multiplies a block with `panel`; `chunk`: the first panel of its chunk.
  void multiply(int64_t block, int64_t row, int64_t rows, int64_t chunk, int64_t panel,
                const float* left, const float* right, const MatmulFetch& fetch) const {
    const bool last = block + 1 == blocks_;
    const int64_t column = (chunk + panel) * kMatmulColumns, at = row * s_.columns + column;
    const int64_t sums_at = sums_apart() ? row * sums_stride() + panel * kMatmulColumns : at;
    functions_.multiply({.left = left,
                         .right = right,
                         .words = words(block),
                         .rows = rows,
                         .columns = std::min(kMatmulColumns, s_.columns - column),
                         .sums = sums_ + sums_at,
                         .sums_stride = sums_stride(),
                         .add = block > 0 || accumulate_,
                         .bias = last && widen_bias_ != nullptr ? bias_ + column : nullptr,
                         .low = low_ && last ? static_cast<uint16_t*>(out_) + at : nullptr,
                         .low_stride = s_.columns,
                         .fetch = fetch});
  }

  // Returns the memory from which a panel is packed.
  MatmulFetch fetch(int64_t block, int64_t panel) const {
    const int64_t element = functions_.element_bytes, column = panel * kMatmulColumns;
    const int64_t inner = block * block_words_ * functions_.elements_a_word;
    const int64_t inner_elements = words(block) * functions_.elements_a_word;
    const int64_t columns = std::min(kMatmulColumns, s_.columns - column);
    const int64_t first =
        s_.b.inner_rows ? column * s_.b.stride + inner : inner * s_.b.stride + column;
    return {.data = static_cast<const char*>(s_.b.data) + first * element,
            .rows = s_.b.inner_rows ? columns : inner_elements,
            .row_bytes = (s_.b.inner_rows ? inner_elements : columns) * element,
            .stride = s_.b.stride * element};
  }

  Sizes s_;
  const MatmulFunctions& functions_;
  bool accumulate_, low_;
  int64_t parts_;
  bool few_rows_;
  WidenFunction widen_bias_ = nullptr;          // nullptr: no bias
  int64_t blocks_, block_words_, last_words_;   // of the inner axis; the last may have fewer words
  int64_t block_rows_, panels_, chunk_panels_;  // chunks: of columns
  float *left_ = nullptr, *right_ = nullptr, *bias_ = nullptr, *sums_ = nullptr;
  void* out_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_matmul_panels(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype, out = request.outputs[0].dtype;
  const MatmulFunctions* functions = matmul_functions(dtype, has_fast_bf16_dot());
  if (functions == nullptr || request.inputs[1].dtype != dtype ||
      (out != DType::f32 && out != dtype) || (request.accumulate && out != DType::f32) ||
      !request.attributes.text("activation").empty()) {
    return nullptr;
  }
  const Sizes s = sizes_of(request);
  if (s.rows < kMinRows || s.columns < kMinColumns || s.inner < kMinInner) return nullptr;
  // In other cases oneDNN was measured to be as fast or faster; with AMX it is in all.
  const bool widened = dtype == DType::bf16 && functions->elements_a_word == 1;
  if (widened && onednn::computes_in(request, dtype)) return nullptr;
  const bool weight_gradient = !s.a.inner_rows;
  // oneDNN loses up to half of its speed when it reads columns of such a matrix, whose elements lie
  // in few sets of the cache; it copies matrices whose rows are a shorter power of two apart.
  const bool aliased = dtype == DType::f32 && !s.b.inner_rows && s.b.stride % kAliasedStride == 0 &&
                       s.b.stride > kAliasedFrom;
  const bool short_sums = dtype == DType::bf16 && s.b.inner_rows &&
                          s.inner <= kMaxInner * (s.rows <= kFewRows ? 4 : 2) &&
                          s.rows <= kMatmulPanelsMaxRows;
  if (!widened && !weight_gradient && !aliased && !short_sums) return nullptr;
  return make_call_kernel<MatmulPanels>(request, s, *functions);
}

}  // namespace dltrain

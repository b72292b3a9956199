// fp8_codes with a scale for each block of codes (lib/ops/fp8.cpp). A block of threads makes the
// codes of a tile of x, which it reads twice: for the largest magnitudes, then from the cache.
#include <bit>

#include "cuda/fp8.cuh"
#include "cuda/makers.h"
#include "cuda/strided_copy.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int kCodeTile = 128;                        // rows and columns of x
constexpr int kCodeWidth = 16;                        // elements of a row that a thread reads
constexpr int kCodesAcross = kCodeTile / kCodeWidth;  // threads of a row
constexpr int kCodeRows = kCodeTile * kCodesAcross / kFp8Block;  // rows of a thread
constexpr int kMostBlocks = kCodeTile * kCodeTile / 32;          // of a tile

// x [rows, columns]. Blocks of x have 2^high rows and 2^wide columns.
struct CodeBlocks {
  Fp8Format format;
  Fp8Scales scales;
  int64_t rows, columns;
  int high, wide;
  bool transpose, loads, stores;  // by packs
};

// Loads elements of a row of x; those outside are 0.
template <typename T>
__device__ void load_codes(const CodeBlocks& c, const T* x, int64_t row, int64_t column,
                           MathOf<T>* value) {
  if (c.loads && row < c.rows && column + kCodeWidth <= c.columns) {
    return load_elements<T, kCodeWidth>(x, row * c.columns + column, value);
  }
  DLTRAIN_UNROLL
  for (int j = 0; j < kCodeWidth; ++j) {
    const bool inside = row < c.rows && column + j < c.columns;
    value[j] = inside ? static_cast<MathOf<T>>(x[row * c.columns + column + j]) : 0;
  }
}

// Stores codes of a row of `codes`, whose rows have `columns`.
__device__ void store_codes(const uint8_t* code, uint8_t* codes, int64_t row, int64_t column,
                            int64_t columns, bool packs) {
  if (packs && column + kCodeWidth <= columns) {
    return store_elements<uint8_t, kCodeWidth>(code, codes, row * columns + column);
  }
  for (int j = 0; j < kCodeWidth && column + j < columns; ++j) {
    codes[row * columns + column + j] = code[j];
  }
}

template <typename T>
__global__ void __launch_bounds__(kFp8Block, 3)
    fp8_code_blocks_kernel(CodeBlocks c, const T* x, uint8_t* codes, void* scales, double* lost) {
  __shared__ uint32_t places[kMostBlocks];  // first the largest magnitudes
  __shared__ Elements<uint8_t, kCodeWidth> turned[kCodeTile][kCodesAcross + 1];
  const int64_t tiles = divide_up(c.columns, kCodeTile);
  const int64_t top = static_cast<int64_t>(blockIdx.x) / tiles * kCodeTile;
  const int64_t left = static_cast<int64_t>(blockIdx.x) % tiles * kCodeTile;
  const int line = static_cast<int>(threadIdx.x) / kCodesAcross * kCodeRows;
  const int first = static_cast<int>(threadIdx.x) % kCodesAcross * kCodeWidth;
  // Blocks in a row of the tile, and from an element to the next. A thread's rows lie in one block
  // unless each row has blocks of its own; its columns unless each column has.
  const int across = kCodeTile >> c.wide, step = c.wide == 0 ? 1 : 0;
  const int blocks = across * (kCodeTile >> c.high);
  const auto block_of = [&](int row) { return (row >> c.high) * across + (first >> c.wide); };
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kFp8Block) places[i] = 0;
  __syncthreads();

  MathOf<T> value[kCodeWidth];
  uint32_t most[kCodeWidth] = {};
  DLTRAIN_ROLL
  for (int i = 0; i < kCodeRows; ++i) {
    load_codes(c, x, top + line + i, left + first, value);
    uint32_t of_row = 0;
    DLTRAIN_UNROLL
    for (int j = 0; j < kCodeWidth; ++j) {
      const uint32_t m = magnitude(value[j]);
      of_row = m > of_row ? m : of_row;
      most[j] = m > most[j] ? m : most[j];
    }
    if (step == 0) atomicMax(&places[block_of(line + i)], of_row);
  }
  if (step == 1) {
    DLTRAIN_UNROLL
    for (int j = 0; j < kCodeWidth; ++j) atomicMax(&places[block_of(line) + j], most[j]);
  }
  __syncthreads();

  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kFp8Block) {
    const int place = fp8_place(places[i], c.format);
    places[i] = static_cast<uint32_t>(place);
    const int64_t row = top + (i / across << c.high), column = left + (i % across << c.wide);
    if (row >= c.rows || column >= c.columns) continue;
    const int64_t at = c.transpose ? c.scales.at(column, row) : c.scales.at(row, column);
    if (c.scales.in_bytes()) {
      static_cast<uint8_t*>(scales)[at] = static_cast<uint8_t>(place);
    } else {
      static_cast<float*>(scales)[at] = fp8_scale(place);
    }
  }
  __syncthreads();

  int underflow = 0;  // the scale leaves none saturated
  DLTRAIN_ROLL
  for (int i = 0; i < kCodeRows; ++i) {
    const int64_t row = top + line + i;
    const int block = block_of(line + i);
    load_codes(c, x, row, left + first, value);
    uint8_t code[kCodeWidth];
    DLTRAIN_UNROLL
    for (int j = 0; j < kCodeWidth; ++j) {
      const float inverse = fp8_inverse(static_cast<int>(places[block + j * step]));
      const auto in = static_cast<float>(value[j]);
      const float y = to_fp8(in, inverse, 1, c.format);
      underflow += is_underflow(in, y) ? 1 : 0;
      code[j] = row < c.rows ? fp8_code(y, c.format) : 0;  // not NaN beside what is not finite
    }
    if (c.transpose) {
      DLTRAIN_UNROLL
      for (int j = 0; j < kCodeWidth; ++j) {
        turned[first + j][(line + i) / kCodeWidth].v[(line + i) % kCodeWidth] = code[j];
      }
    } else if (row < c.rows) {
      store_codes(code, codes, row, left + first, c.columns, c.stores);
    }
  }
  if (c.transpose) {
    __syncthreads();
    for (int i = 0; i < kCodeRows && left + line + i < c.columns; ++i) {
      store_codes(turned[line + i][first / kCodeWidth].v, codes, left + line + i, top + first,
                  c.scales.columns, c.stores);
    }
  }
  add_lost(0, underflow, lost);
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_fp8_code_blocks(const KernelRequest& request) {
  const TensorSpec &x = request.inputs[0], &out = request.outputs[0], &scale = request.outputs[1];
  const int64_t count = x.shape.elements(), columns = x.shape[-1];
  if (x.dtype == DType::f64 || count == 0) return nullptr;
  const Fp8Scales scales = fp8_scales(out.shape, request.attributes.integers("block"));
  const bool transpose = request.attributes.boolean("transpose");
  const auto power_of = [](int64_t size) { return std::countr_zero(static_cast<uint64_t>(size)); };
  const CodeBlocks call{.format = fp8_format_of(request),
                        .scales = scales,
                        .rows = count / columns,
                        .columns = columns,
                        .high = power_of(transpose ? scales.wide : scales.high),
                        .wide = power_of(transpose ? scales.high : scales.wide),
                        .transpose = transpose,
                        .loads = false,
                        .stores = false};
  const int64_t padded_rows = transpose ? scales.columns : call.rows;
  const auto grid =
      static_cast<unsigned>(divide_up(padded_rows, kCodeTile) * divide_up(columns, kCodeTile));
  return make_kernel(
      [call, dtype = x.dtype, grid, count, scale](const Bindings& b, Stream& stream) {
        launch_fill(8, 0, b.outputs[2], 3, stream.native());
        launch_fill(1, 0, b.outputs[1], static_cast<int64_t>(scale.bytes()), stream.native());
        with_floating(dtype, [&]<typename T>(T) {
          CodeBlocks c = call;
          c.loads = is_pack_aligned(b.inputs[0]) && c.columns % Pack<T>::size == 0;
          c.stores = is_pack_aligned(b.outputs[0]) && c.scales.columns % kCodeWidth == 0;
          DLTRAIN_LAUNCH(fp8_code_blocks_kernel<T>, grid, kFp8Block, stream.native(), c,
                         b.input<T>(0), b.output<uint8_t>(0), b.outputs[1], b.output<double>(2));
        });
        launch_lost_shares(b.output<double>(2), count, stream.native());
      });
}

}  // namespace dltrain

// The ops of lib/ops/fp8.cpp. Largest magnitudes are compared as integers.
#include "cuda/fp8.cuh"
#include "cuda/makers.h"
#include "cuda/strided_copy.h"
#include "ops/step_state.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

static_assert(kFp8Block == kFp8Counts);

// Returns the last place of `counts` that is not 0, in every thread of a block of kFp8Block.
__device__ int last_place(const float* counts) {
  const int own = static_cast<int>(threadIdx.x);
  return block_max(counts[own] != 0 ? own : 0);
}

// Writes the largest magnitude of each block of threads.
template <typename T>
__global__ void fp8_amax_kernel(const T* x, int64_t count, bool packs, uint32_t* most) {
  uint32_t own = 0;
  constexpr int kWidth = Pack<T>::size;
  sweep_elements<kWidth>(packs ? count / kWidth : 0, count, thread_index(), thread_count(),
                         [&]<int N>(int64_t at) {
                           MathOf<T> value[N];
                           load_elements<T, N>(x, at, value);
                           for (int j = 0; j < N; ++j) {
                             const uint32_t m = magnitude(value[j]);
                             own = m > own ? m : own;
                           }
                         });
  own = block_max(own);
  if (threadIdx.x == 0) most[blockIdx.x] = own;
}

// One block of kFp8Counts threads.
__global__ void fp8_counts_kernel(Fp8Format format, const uint32_t* most, int blocks,
                                  float* counts) {
  uint32_t own = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kFp8Counts) {
    own = most[i] > own ? most[i] : own;
  }
  const int place = fp8_place(block_max(own), format);
  counts[threadIdx.x] = place > 0 && static_cast<int>(threadIdx.x) == place ? 1 : 0;
}

__global__ void fp8_lost_kernel(double* lost, int64_t count) {
  lost[0] /= static_cast<double>(count);
  lost[1] /= static_cast<double>(count);
  lost[2] = 1;
}

template <typename T>
__global__ void fp8_round_kernel(Fp8Format format, const T* x, const float* counts, T* y,
                                 double* lost, int64_t count, bool packs) {
  const int place = last_place(counts);
  const float scale = fp8_scale(place), inverse = fp8_inverse(place);
  double saturated = 0, underflow = 0;
  constexpr int kWidth = Pack<T>::size;
  sweep_elements<kWidth>(packs ? count / kWidth : 0, count, thread_index(), thread_count(),
                         [&]<int N>(int64_t at) {
                           MathOf<T> value[N];
                           load_elements<T, N>(x, at, value);
                           for (int j = 0; j < N; ++j) {
                             const auto in = static_cast<float>(value[j]);
                             const float out = to_fp8(in, inverse, scale, format);
                             saturated += is_saturated(in, inverse, format) ? 1 : 0;
                             underflow += is_underflow(in, out) ? 1 : 0;
                             value[j] = out;
                           }
                           store_elements<T, N>(value, y, at);
                         });
  add_lost(saturated, underflow, lost);
}

struct Fp8Blocks {
  Fp8Format format;
  int64_t rows, columns, high, wide;
};

// A block of threads for each block of x.
template <typename T>
__global__ void fp8_blocks_kernel(Fp8Blocks c, const T* x, T* y, double* lost) {
  const int64_t across = divide_up(c.columns, c.wide);
  const int64_t row = static_cast<int64_t>(blockIdx.x) / across * c.high;
  const int64_t column = static_cast<int64_t>(blockIdx.x) % across * c.wide;
  const int64_t high = c.rows - row < c.high ? c.rows - row : c.high;
  const int64_t wide = c.columns - column < c.wide ? c.columns - column : c.wide;
  const auto at = [&](int64_t i) { return (row + i / wide) * c.columns + column + i % wide; };
  uint32_t most = 0;
  for (int64_t i = threadIdx.x; i < high * wide; i += blockDim.x) {
    const uint32_t m = magnitude(x[at(i)]);
    most = m > most ? m : most;
  }
  const int place = fp8_place(block_max(most), c.format);
  const float scale = fp8_scale(place), inverse = fp8_inverse(place);
  double underflow = 0;
  for (int64_t i = threadIdx.x; i < high * wide; i += blockDim.x) {
    const auto in = static_cast<float>(x[at(i)]);
    const float out = to_fp8(in, inverse, scale, c.format);
    underflow += is_underflow(in, out) ? 1 : 0;
    y[at(i)] = static_cast<T>(out);
  }
  add_lost(0, underflow, lost);
}

// Returns the code of x, and counts it if it is lost.
__device__ uint8_t coded(float x, float inverse, const Fp8Format& format, double& saturated,
                         double& underflow) {
  const float y = to_fp8(x, inverse, 1, format);
  saturated += is_saturated(x, inverse, format) ? 1 : 0;
  underflow += is_underflow(x, y) ? 1 : 0;
  return fp8_code(y, format);
}

template <typename T>
__global__ void fp8_codes_kernel(Fp8Format format, const T* x, const float* counts, uint8_t* codes,
                                 float* scale, double* lost, int64_t count, bool packs) {
  const int place = last_place(counts);
  const float inverse = fp8_inverse(place);
  double saturated = 0, underflow = 0;
  sweep_elements<16>(packs ? count / 16 : 0, count, thread_index(), thread_count(),
                     [&]<int N>(int64_t at) {
                       MathOf<T> value[N];
                       load_elements<T, N>(x, at, value);
                       uint8_t code[N];
                       DLTRAIN_UNROLL
                       for (int j = 0; j < N; ++j) {
                         const auto in = static_cast<float>(value[j]);
                         code[j] = coded(in, inverse, format, saturated, underflow);
                       }
                       store_elements<uint8_t, N>(code, codes, at);
                     });
  if (thread_index() == 0) *scale = fp8_scale(place);
  add_lost(saturated, underflow, lost);
}

constexpr int kFp8Tile = 64;  // rows and columns of x that a block of kFp8Block threads transposes

// x [rows, columns], codes [columns, padded].
struct Fp8Transpose {
  Fp8Format format;
  int64_t rows, columns, padded;
  bool loads, stores;  // by packs
};

// A thread loads 16 elements of a row of x, and stores 16 of a column.
template <typename T>
__global__ void fp8_codes_transposed_kernel(Fp8Transpose c, const T* x, const float* counts,
                                            uint8_t* codes, float* scale, double* lost) {
  constexpr int kWidth = 16, kAcross = kFp8Tile / kWidth;
  __shared__ Elements<uint8_t, kWidth> tile[kFp8Tile][kAcross + 1];  // [column][rows]
  const int place = last_place(counts);
  const float inverse = fp8_inverse(place);
  const int64_t tiles = divide_up(c.columns, kFp8Tile);
  const int64_t top = static_cast<int64_t>(blockIdx.x) / tiles * kFp8Tile;
  const int64_t left = static_cast<int64_t>(blockIdx.x) % tiles * kFp8Tile;
  const int line = static_cast<int>(threadIdx.x) / kAcross;
  const int first = static_cast<int>(threadIdx.x) % kAcross * kWidth;
  double saturated = 0, underflow = 0;
  const int64_t row = top + line, column = left + first;
  const bool whole = c.loads && row < c.rows && column + kWidth <= c.columns;
  MathOf<T> value[kWidth];
  if (whole) load_elements<T, kWidth>(x, row * c.columns + column, value);
  DLTRAIN_UNROLL
  for (int j = 0; j < kWidth; ++j) {
    const bool inside = row < c.rows && column + j < c.columns;
    if (!whole && inside) value[j] = static_cast<MathOf<T>>(x[row * c.columns + column + j]);
    tile[first + j][line / kWidth].v[line % kWidth] =
        inside ? coded(static_cast<float>(value[j]), inverse, c.format, saturated, underflow)
               : uint8_t{0};
  }
  __syncthreads();
  if (left + line < c.columns && top + first < c.padded) {
    const Elements<uint8_t, kWidth>& stored = tile[line][first / kWidth];
    uint8_t* to = codes + (left + line) * c.padded + top + first;
    if (c.stores) {
      store_elements<uint8_t, kWidth>(stored.v, to, 0);
    } else {
      for (int j = 0; j < kWidth; ++j) to[j] = stored.v[j];
    }
  }
  if (thread_index() == 0) *scale = fp8_scale(place);
  add_lost(saturated, underflow, lost);
}

// Packs of codes lie in one block.
template <typename T>
__global__ void fp8_values_kernel(Fp8Format format, Fp8Scales c, const uint8_t* codes,
                                  const void* scales, T* y, int64_t count, bool packs) {
  sweep_elements<16>(
      packs ? count / 16 : 0, count, thread_index(), thread_count(), [&]<int N>(int64_t first) {
        const int64_t at = c.wide == 0 ? 0 : c.at(first / c.columns, first % c.columns);
        const float factor = c.in_bytes() ? fp8_scale(static_cast<const uint8_t*>(scales)[at])
                                          : static_cast<const float*>(scales)[at];
        uint8_t code[N];
        load_elements<uint8_t, N>(codes, first, code);
        float value[N];
        DLTRAIN_UNROLL
        for (int j = 0; j < N; ++j) value[j] = fp8_value(code[j], format) * factor;
        store_elements<T, N>(value, y, first);
      });
}

// One block of kFp8Block threads.
__global__ void fp8_scale_kernel(const StepState* state, int64_t window, const float* counts,
                                 float* history, float* scale) {
  if (state->out.finite == 0) return;  // uniform
  const int64_t at = (state->out.updates - 1) % window;
  const int place = last_place(counts);
  int most = place;
  for (int64_t i = threadIdx.x; i < window; i += kFp8Block) {
    const int other = i == at ? place : static_cast<int>(history[i]);
    most = other > most ? other : most;
  }
  most = block_max(most);
  if (threadIdx.x == 0) history[at] = static_cast<float>(place);
  const int own = static_cast<int>(threadIdx.x);
  scale[own] = own == most && own > 0 ? 1.0f : 0.0f;
}

}  // namespace

void launch_lost_shares(double* lost, int64_t count, CudaStream stream) {
  DLTRAIN_LAUNCH(fp8_lost_kernel, 1u, 1u, stream, lost, count);
}

std::unique_ptr<Kernel> make_cuda_fp8_counts(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  if (x.dtype == DType::f64) return nullptr;
  const int64_t count = x.shape.elements();
  const unsigned grid = stride_grid(count / 8 + 1, kFp8Block);
  return make_kernel(
      [format = fp8_format_of(request), dtype = x.dtype, count, grid](const Bindings& b,
                                                                      Stream& stream) {
        auto* most = static_cast<uint32_t*>(b.workspace);
        with_floating(dtype, [&]<typename T>(T) {
          DLTRAIN_LAUNCH(fp8_amax_kernel<T>, grid, kFp8Block, stream.native(), b.input<T>(0), count,
                         is_pack_aligned(b.inputs[0]), most);
        });
        DLTRAIN_LAUNCH(fp8_counts_kernel, 1u, kFp8Counts, stream.native(), format, most,
                       static_cast<int>(grid), b.output<float>(0));
      },
      grid * sizeof(uint32_t));
}

std::unique_ptr<Kernel> make_cuda_fp8_round(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  if (x.dtype == DType::f64) return nullptr;
  const int64_t count = x.shape.elements(), columns = x.shape[-1];
  const Fp8Format format = fp8_format_of(request);
  const std::vector<int64_t> block = request.attributes.integers("block");
  if (count == 0) return nullptr;
  if (block.empty()) {
    return make_kernel([format, dtype = x.dtype, count](const Bindings& b, Stream& stream) {
      launch_fill(8, 0, b.outputs[1], 3, stream.native());
      const bool packs = is_pack_aligned(b.inputs[0]) && is_pack_aligned(b.outputs[0]);
      with_floating(dtype, [&]<typename T>(T) {
        DLTRAIN_LAUNCH(fp8_round_kernel<T>, stride_grid(count / 8 + 1, kFp8Block), kFp8Block,
                       stream.native(), format, b.input<T>(0), b.input<float>(1), b.output<T>(0),
                       b.output<double>(1), count, packs);
      });
      launch_lost_shares(b.output<double>(1), count, stream.native());
    });
  }
  const Fp8Blocks call{format, count / columns, columns, block[0], block[1]};
  const int threads = block[0] * block[1] > 1024 ? kFp8Block : kWarp;
  const auto grid =
      static_cast<unsigned>(divide_up(call.rows, call.high) * divide_up(columns, call.wide));
  return make_kernel(
      [call, dtype = x.dtype, grid, threads, count](const Bindings& b, Stream& stream) {
        launch_fill(8, 0, b.outputs[1], 3, stream.native());
        with_floating(dtype, [&]<typename T>(T) {
          DLTRAIN_LAUNCH(fp8_blocks_kernel<T>, grid, threads, stream.native(), call, b.input<T>(0),
                         b.output<T>(0), b.output<double>(1));
        });
        launch_lost_shares(b.output<double>(1), count, stream.native());
      });
}

std::unique_ptr<Kernel> make_cuda_fp8_codes(const KernelRequest& request) {
  if (request.attributes.has("block")) return make_cuda_fp8_code_blocks(request);
  const TensorSpec& x = request.inputs[0];
  const int64_t count = x.shape.elements(), columns = x.shape[-1];
  if (x.dtype == DType::f64 || count == 0) return nullptr;
  const bool transpose = request.attributes.boolean("transpose");
  return make_kernel([=, format = fp8_format_of(request), dtype = x.dtype,
                      padded = request.outputs[0].shape[-1]](const Bindings& b, Stream& stream) {
    launch_fill(8, 0, b.outputs[2], 3, stream.native());
    with_floating(dtype, [&]<typename T>(T) {
      if (transpose) {
        const auto grid =
            static_cast<unsigned>(divide_up(padded, kFp8Tile) * divide_up(columns, kFp8Tile));
        const Fp8Transpose call{format,
                                count / columns,
                                columns,
                                padded,
                                is_pack_aligned(b.inputs[0]) && columns % Pack<T>::size == 0,
                                is_pack_aligned(b.outputs[0])};
        DLTRAIN_LAUNCH(fp8_codes_transposed_kernel<T>, grid, kFp8Block, stream.native(), call,
                       b.input<T>(0), b.input<float>(1), b.output<uint8_t>(0), b.output<float>(1),
                       b.output<double>(2));
      } else {
        DLTRAIN_LAUNCH(fp8_codes_kernel<T>, stride_grid(count / 16 + 1, kFp8Block), kFp8Block,
                       stream.native(), format, b.input<T>(0), b.input<float>(1),
                       b.output<uint8_t>(0), b.output<float>(1), b.output<double>(2), count,
                       is_pack_aligned(b.inputs[0]) && is_pack_aligned(b.outputs[0]));
      }
    });
    launch_lost_shares(b.output<double>(2), count, stream.native());
  });
}

std::unique_ptr<Kernel> make_cuda_fp8_values(const KernelRequest& request) {
  const TensorSpec& y = request.outputs[0];
  const int64_t count = y.shape.elements();
  if (request.inputs[1].dtype == DType::f64 || y.dtype == DType::f64 || count == 0) return nullptr;
  const Fp8Scales scales = fp8_scales(y.shape, request.attributes.integers("block"));
  return make_kernel(
      [=, format = fp8_format_of(request), dtype = y.dtype](const Bindings& b, Stream& stream) {
        const bool packs = is_pack_aligned(b.inputs[0]) && is_pack_aligned(b.outputs[0]) &&
                           (scales.wide == 0 || scales.columns % 16 == 0);
        with_floating(dtype, [&]<typename T>(T) {
          DLTRAIN_LAUNCH(fp8_values_kernel<T>, stride_grid(count / 16 + 1, kFp8Block), kFp8Block,
                         stream.native(), format, scales, b.input<uint8_t>(0), b.inputs[1],
                         b.output<T>(0), count, packs);
        });
      });
}

std::unique_ptr<Kernel> make_cuda_fp8_scale_update(const KernelRequest& request) {
  if (request.inputs[1].dtype != DType::f32) return nullptr;
  return make_kernel(
      [window = request.inputs[2].shape.elements()](const Bindings& b, Stream& stream) {
        DLTRAIN_LAUNCH(fp8_scale_kernel, 1u, kFp8Block, stream.native(), b.input<StepState>(0),
                       window, b.input<float>(1), static_cast<float*>(b.inputs[2]),
                       static_cast<float*>(b.inputs[3]));
      });
}

}  // namespace dltrain

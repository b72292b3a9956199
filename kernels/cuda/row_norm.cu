// Layer and RMS norm. The mean first and the deviations from it in a second reading of the row,
// which then lies in the cache: no cancellation. Gradients of weight and bias are sums over rows:
// of fixed chunks first, which are then added in order and in double.
#include <cmath>

#include "cuda/column_sums.cuh"
#include "cuda/row_norm.h"
#include "cuda/row_sweep.cuh"

namespace dltrain {
namespace {

constexpr int64_t kLeastChunk = 128, kMostChunks = 256;

int64_t chunk_rows(int64_t rows) {
  const int64_t even = divide_up(rows, kMostChunks);
  return even < kLeastChunk ? kLeastChunk : even;
}

template <typename T, int kThreads>
__global__ void row_norm_kernel(const T* x, const MathOf<T>* weight, const MathOf<T>* bias, T* y,
                                MathOf<T>* mean, MathOf<T>* rstd, int64_t rows, int64_t columns,
                                MathOf<T> epsilon, bool centred, bool packs) {
  using M = MathOf<T>;
  const int64_t row = own_row<kThreads>();
  if (row >= rows) return;  // a whole warp, or never
  const T* const in[1] = {x + row * columns};
  const M count = static_cast<M>(columns);
  M middle = 0;
  if (centred) {
    sweep_row<kThreads>(in, static_cast<T*>(nullptr), columns, packs,
                        [&](int64_t, const M* v) { return middle += v[0]; });
    middle = row_sum<kThreads>(middle) / count;
  }
  M squares = 0;
  sweep_row<kThreads>(in, static_cast<T*>(nullptr), columns, packs, [&](int64_t, const M* v) {
    return squares += (v[0] - middle) * (v[0] - middle);
  });
  const M scale = M(1) / std::sqrt(row_sum<kThreads>(squares) / count + epsilon);
  sweep_row<kThreads>(in, y + row * columns, columns, packs, [&](int64_t c, const M* v) {
    M value = (v[0] - middle) * scale;
    if (weight != nullptr) value *= weight[c];
    if (bias != nullptr) value += bias[c];
    return value;
  });
  if (own_lane<kThreads>() != 0) return;
  if (centred) mean[row] = middle;
  rstd[row] = scale;
}

// dx = rstd·(g − mean g − x̂·mean(g·x̂)) with g = dy·weight; without the first mean for rms_norm.
template <typename T, int kThreads>
__global__ void row_norm_backward_kernel(const T* x, const T* dy, const MathOf<T>* weight,
                                         const MathOf<T>* mean, const MathOf<T>* rstd, T* dx,
                                         int64_t rows, int64_t columns, bool packs) {
  using M = MathOf<T>;
  const int64_t row = own_row<kThreads>();
  if (row >= rows) return;
  const T* const in[2] = {x + row * columns, dy + row * columns};
  const M middle = mean != nullptr ? mean[row] : M(0), scale = rstd[row];
  const auto gradient = [&](int64_t c, M value) {
    return weight != nullptr ? value * weight[c] : value;
  };
  M plain = 0, weighted = 0;
  sweep_row<kThreads>(in, static_cast<T*>(nullptr), columns, packs, [&](int64_t c, const M* v) {
    const M g = gradient(c, v[1]);
    plain += g;
    return weighted += g * ((v[0] - middle) * scale);
  });
  plain = mean != nullptr ? row_sum<kThreads>(plain) / static_cast<M>(columns) : M(0);
  weighted = row_sum<kThreads>(weighted) / static_cast<M>(columns);
  sweep_row<kThreads>(in, dx + row * columns, columns, packs, [&](int64_t c, const M* v) {
    const M normalised = (v[0] - middle) * scale;
    return scale * (gradient(c, v[1]) - plain - normalised * weighted);
  });
}

// partial[chunk] = {Σ dy·x̂ [columns], Σ dy [columns]}.
template <typename T, int W>
__global__ void parameter_sums_kernel(const T* x, const T* dy, const MathOf<T>* mean,
                                      const MathOf<T>* rstd, MathOf<T>* partial, int64_t rows,
                                      int64_t columns, int64_t chunk) {
  using M = MathOf<T>;
  const int64_t column = own_columns<W>();
  const int64_t begin = blockIdx.y * chunk;
  const int64_t end = begin + chunk < rows ? begin + chunk : rows;
  M weighted[W] = {}, plain[W] = {};
  if (column < columns) {
    for (int64_t row = begin + threadIdx.y; row < end; row += blockDim.y) {
      const M middle = mean != nullptr ? mean[row] : M(0), scale = rstd[row];
      M value[W], gradient[W];
      load_columns<W>(x + row * columns + column, value);
      load_columns<W>(dy + row * columns + column, gradient);
      for (int j = 0; j < W; ++j) {
        weighted[j] += gradient[j] * ((value[j] - middle) * scale);
        plain[j] += gradient[j];
      }
    }
  }
  M* out = partial + 2 * columns * blockIdx.y;
  add_parts(weighted, plain, columns, [&](int64_t c, M first, M second) {
    out[c] = first;
    out[columns + c] = second;
  });
}

template <typename T>
const MathOf<T>* numbers(const void* pointer) {
  return static_cast<const MathOf<T>*>(pointer);
}
template <typename T>
MathOf<T>* numbers(void* pointer) {
  return static_cast<MathOf<T>*>(pointer);
}

}  // namespace

void launch_row_norm(const RowNormCall& c, const void* x, const void* weight, const void* bias,
                     void* y, void* mean, void* rstd, CudaStream stream) {
  if (c.rows * c.columns == 0) return;
  with_floating(c.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH_ROWS(row_norm_kernel, T, c.rows, c.columns, stream, static_cast<const T*>(x),
                        numbers<T>(weight), numbers<T>(bias), static_cast<T*>(y), numbers<T>(mean),
                        numbers<T>(rstd), c.rows, c.columns, static_cast<MathOf<T>>(c.epsilon),
                        c.centred, rows_in_packs<T>(c.columns, {x, y}));
  });
}

int64_t row_norm_workspace_elements(const RowNormCall& call) {
  return 2 * call.columns * divide_up(call.rows, chunk_rows(call.rows));
}

void launch_row_norm_backward(const RowNormCall& c, const void* x, const void* dy,
                              const void* weight, const void* mean, const void* rstd, void* dx,
                              CudaStream stream) {
  if (c.rows * c.columns == 0) return;
  with_floating(c.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH_ROWS(row_norm_backward_kernel, T, c.rows, c.columns, stream,
                        static_cast<const T*>(x), static_cast<const T*>(dy), numbers<T>(weight),
                        numbers<T>(mean), numbers<T>(rstd), static_cast<T*>(dx), c.rows, c.columns,
                        rows_in_packs<T>(c.columns, {x, dy, dx}));
  });
}

void launch_row_norm_parameters(const RowNormCall& c, const void* x, const void* dy,
                                const void* mean, const void* rstd, void* dweight, void* dbias,
                                void* workspace, CudaStream stream) {
  if (c.columns == 0 || (dweight == nullptr && dbias == nullptr)) return;
  const int64_t chunk = chunk_rows(c.rows), chunks = divide_up(c.rows, chunk);
  with_floating(c.dtype, [&]<typename T>(T) {
    with_width<T>(chunks > 0 && rows_in_packs<T>(c.columns, {x, dy}),
                  [&]<int W>(std::integral_constant<int, W>) {
                    if (chunks == 0) return;
                    const ColumnGrid tiles(c.columns, W, chunks);
                    DLTRAIN_LAUNCH((parameter_sums_kernel<T, W>), tiles.grid, tiles.block, stream,
                                   static_cast<const T*>(x), static_cast<const T*>(dy),
                                   numbers<T>(mean), numbers<T>(rstd), numbers<T>(workspace),
                                   c.rows, c.columns, chunk);
                  });
    const ColumnGrid join(c.columns, 1, 1);
    DLTRAIN_LAUNCH(join_pairs_kernel<MathOf<T>>, join.grid, join.block, stream,
                   numbers<T>(static_cast<const void*>(workspace)), numbers<T>(dweight),
                   numbers<T>(dbias), c.columns, chunks);
  });
}

}  // namespace dltrain

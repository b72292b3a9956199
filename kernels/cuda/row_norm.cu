// layer_norm and rms_norm over x [rows, columns] and their gradients (lib/ops/layer_norm.cpp has
// the formulas). Weight, bias and statistics have the accumulation dtype of x.
//
// First the mean, then the deviations from it in a second pass over the row, which is then in the
// cache: no cancellation. Gradients of weight and bias are sums over rows: first over fixed chunks,
// which are then added in order and in double.
#include <cmath>

#include "cuda/column_sums.cuh"
#include "cuda/makers.h"
#include "cuda/row_sweep.cuh"
#include "ops/rules.h"
#include "shared/bound_kernel.h"

namespace dltrain {
namespace {

struct RowNormCall {
  DType dtype;
  int64_t rows, columns;
  double epsilon;
  bool centred;  // layer_norm; false: rms_norm, which has no mean and no bias
};

RowNormCall row_norm_call(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  const int64_t columns = x.shape[-1];
  return {.dtype = x.dtype,
          .rows = columns == 0 ? 0 : x.shape.elements() / columns,
          .columns = columns,
          .epsilon = request.attributes.number("epsilon", 1e-5),
          .centred = request.op.starts_with("layer_norm")};
}

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
  if (row >= rows) return;  // uniform over a warp
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

// Returns the mean among the backward's inputs; nullptr: rms_norm.
template <typename M>
const M* mean_of(const RowNormCall& c, const Bindings& b) {
  return c.centred ? b.input<M>(3) : nullptr;
}

// Computes dweight and dbias unless they are nullptr.
template <typename T>
void parameter_gradients(const RowNormCall& c, const Bindings& b, MathOf<T>* dweight,
                         MathOf<T>* dbias, CudaStream stream) {
  using M = MathOf<T>;
  if (c.columns == 0 || (dweight == nullptr && dbias == nullptr)) return;
  auto* partial = static_cast<M*>(b.workspace);
  const int64_t chunk = chunk_rows(c.rows), chunks = divide_up(c.rows, chunk);
  const bool packs = chunks > 0 && rows_in_packs<T>(c.columns, {b.inputs[0], b.inputs[1]});
  with_width<T>(packs, [&]<int W>(std::integral_constant<int, W>) {
    if (chunks == 0) return;
    const ColumnGrid tiles(c.columns, W, chunks);
    DLTRAIN_LAUNCH((parameter_sums_kernel<T, W>), tiles.grid, tiles.block, stream, b.input<T>(0),
                   b.input<T>(1), mean_of<M>(c, b), b.input<M>(b.inputs.size() - 1), partial,
                   c.rows, c.columns, chunk);
  });
  const ColumnGrid join(c.columns, 1, 1);
  DLTRAIN_LAUNCH(join_pairs_kernel<M>, join.grid, join.block, stream,
                 static_cast<const M*>(partial), dweight, dbias, c.columns, chunks);
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_row_norm(const KernelRequest& request) {
  return make_kernel([c = row_norm_call(request)](const Bindings& b, Stream& stream) {
    if (c.rows * c.columns == 0) return;
    with_floating(c.dtype, [&]<typename T>(T) {
      using M = MathOf<T>;
      const M* bias = c.centred ? b.input<M>(2) : nullptr;
      M *mean = c.centred ? b.output<M>(1) : nullptr, *rstd = b.output<M>(c.centred ? 2 : 1);
      DLTRAIN_LAUNCH_ROWS(row_norm_kernel, T, c.rows, c.columns, stream.native(), b.input<T>(0),
                          b.input<M>(1), bias, b.output<T>(0), mean, rstd, c.rows, c.columns,
                          static_cast<M>(c.epsilon), c.centred,
                          rows_in_packs<T>(c.columns, {b.inputs[0], b.outputs[0]}));
    });
  });
}

std::unique_ptr<Kernel> make_cuda_row_norm_backward(const KernelRequest& request) {
  const RowNormCall c = row_norm_call(request);
  const bool has_weight = !is_absent(request.inputs[2]);
  const bool has_bias = c.centred && request.attributes.boolean("bias");
  const auto run = [=](const Bindings& b, Stream& stream) {
    with_floating(c.dtype, [&]<typename T>(T) {
      using M = MathOf<T>;
      M* dweight = has_weight ? b.output<M>(1) : nullptr;
      M* dbias = has_bias ? b.output<M>(b.outputs.size() - 1) : nullptr;
      // Compute this first, since dx may overwrite dy.
      parameter_gradients<T>(c, b, dweight, dbias, stream.native());
      if (c.rows * c.columns == 0) return;
      DLTRAIN_LAUNCH_ROWS(row_norm_backward_kernel, T, c.rows, c.columns, stream.native(),
                          b.input<T>(0), b.input<T>(1), b.input<M>(2), mean_of<M>(c, b),
                          b.input<M>(b.inputs.size() - 1), b.output<T>(0), c.rows, c.columns,
                          rows_in_packs<T>(c.columns, {b.inputs[0], b.inputs[1], b.outputs[0]}));
    });
  };
  const int64_t partial = 2 * c.columns * divide_up(c.rows, chunk_rows(c.rows));
  return make_kernel(run, has_weight || has_bias ? static_cast<size_t>(partial) *
                                                       dtype_size(accumulation_dtype(c.dtype))
                                                 : 0);
}

}  // namespace dltrain

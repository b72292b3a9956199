// Batch normalisation over x [rows, channels] and its gradient. x, y, the residual and their
// gradients have any floating dtype; gamma, beta, statistics and their gradients its accumulation
// dtype.
//
// Statistics take one pass over x: within a chunk of rows, sums of x − K and (x − K)² with the
// chunk's first value K of the channel, which avoids cancellation; chunks are then merged in
// double, in a fixed order.
#include <cmath>

#include "cuda/column_sums.cuh"
#include "cuda/makers.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct BatchNormCall {
  DType dtype;
  int64_t rows, channels;
  double epsilon;
  bool relu;
};

constexpr int64_t kMinChunk = 128, kMaxChunks = 1024;

int64_t chunk_rows(int64_t rows) {
  const int64_t even = divide_up(rows, kMaxChunks);
  return even < kMinChunk ? kMinChunk : even;
}
int64_t chunk_count(int64_t rows) {
  return divide_up(rows, chunk_rows(rows));
}

// partial[chunk] = {mean [channels], sum of squared distances from it [channels]}.
template <typename T, int W>
__global__ void statistics_kernel(const T* x, MathOf<T>* partial, int64_t rows, int64_t channels,
                                  int64_t chunk) {
  using M = MathOf<T>;
  const int64_t channel = own_columns<W>();
  const int64_t begin = blockIdx.y * chunk;
  const int64_t end = begin + chunk < rows ? begin + chunk : rows;
  M sum[W] = {}, squares[W] = {};
  if (channel < channels) {
    M centre[W], value[W];
    load_columns<W>(x + begin * channels + channel, centre);
    for (int64_t row = begin + threadIdx.y; row < end; row += blockDim.y) {
      load_columns<W>(x + row * channels + channel, value);
      for (int j = 0; j < W; ++j) {
        const M distance = value[j] - centre[j];
        sum[j] += distance;
        squares[j] += distance * distance;
      }
    }
  }
  M* out = partial + 2 * channels * blockIdx.y;
  const M count = static_cast<M>(end - begin);
  add_parts(sum, squares, channels, [&](int64_t c, M total, M square) {
    out[c] = static_cast<M>(x[begin * channels + c]) + total / count;
    const M spread = square - total * total / count;
    out[channels + c] = spread < M(0) ? M(0) : spread;
  });
}

// Merges the chunks by sums of n·d and n·d² with the distance d of a chunk's mean from that of the
// first chunk: no division for each chunk. Launched with ColumnGrid::join(channels).
template <typename M>
__global__ void join_statistics_kernel(const M* partial, M* mean, M* variance, int64_t rows,
                                       int64_t channels, int64_t chunk, int64_t chunks) {
  const int64_t channel = own_columns<1>();
  double sum[1] = {0}, squares[1] = {0};
  if (channel < channels) {
    const double centre = static_cast<double>(partial[channel]);
    for (int64_t i = threadIdx.y; i < chunks; i += blockDim.y) {
      const M* own = partial + 2 * channels * i + channel;
      const double count = static_cast<double>(i + 1 < chunks ? chunk : rows - i * chunk);
      const double distance = static_cast<double>(own[0]) - centre;
      sum[0] += count * distance;
      squares[0] += count * distance * distance + static_cast<double>(own[channels]);
    }
  }
  add_parts(sum, squares, channels, [&](int64_t c, double total, double square) {
    const double share = 1 / static_cast<double>(rows), distance = total * share;
    const double spread = square * share - distance * distance;
    mean[c] = static_cast<M>(static_cast<double>(partial[c]) + distance);
    variance[c] = spread < 0 ? M(0) : static_cast<M>(spread);
  });
}

template <typename M>
struct NormParameters {
  const M *gamma, *beta, *mean, *variance;
  M epsilon;
  bool relu;
};

// The linear function from x to y for W channels. The gradient of a fused relu recomputes it with
// the same bits.
template <typename M, int W>
struct ChannelAffine {
  M own_mean[W], rstd[W], scale[W], shift[W];
  bool relu;

  // beta: nullptr if there is no relu in the gradient.
  __device__ ChannelAffine(const NormParameters<M>& of, int64_t channel) : relu(of.relu) {
    for (int j = 0; j < W; ++j) {
      own_mean[j] = of.mean[channel + j];
      rstd[j] = M(1) / std::sqrt(of.variance[channel + j] + of.epsilon);
      scale[j] = of.gamma[channel + j] * rstd[j];
      shift[j] = of.beta != nullptr ? of.beta[channel + j] : M(0);
    }
  }
  __device__ M at(M x, int j) const { return (x - own_mean[j]) * scale[j] + shift[j]; }
  // Returns dy, or with relu 0 where the forward is not positive.
  __device__ M gradient(M x, M dy, int j) const { return !relu || at(x, j) > M(0) ? dy : M(0); }
};

template <typename T, int W>
__global__ void normalise_kernel(const T* x, NormParameters<MathOf<T>> of, const T* residual, T* y,
                                 int64_t rows, int64_t channels) {
  using M = MathOf<T>;
  const int64_t channel = own_columns<W>();
  if (channel >= channels) return;
  const ChannelAffine<M, W> affine(of, channel);
  for (int64_t row = blockIdx.y * blockDim.y + threadIdx.y; row < rows;
       row += static_cast<int64_t>(gridDim.y) * blockDim.y) {
    const int64_t at = row * channels + channel;
    M value[W], more[W] = {};
    load_columns<W>(x + at, value);
    if (residual != nullptr) load_columns<W>(residual + at, more);
    for (int j = 0; j < W; ++j) {
      value[j] = affine.at(value[j], j) + more[j];
      if (affine.relu && value[j] < M(0)) value[j] = M(0);
    }
    store_columns<W>(value, y + at);
  }
}

// partial[chunk] = {Σ dy·x̂ [channels], Σ dy [channels]} with x̂ = (x − mean)/√(variance + ε).
template <typename T, int W>
__global__ void gradient_sums_kernel(const T* x, const T* dy, NormParameters<MathOf<T>> of,
                                     MathOf<T>* partial, int64_t rows, int64_t channels,
                                     int64_t chunk) {
  using M = MathOf<T>;
  const int64_t channel = own_columns<W>();
  const int64_t begin = blockIdx.y * chunk;
  const int64_t end = begin + chunk < rows ? begin + chunk : rows;
  M dgamma[W] = {}, dbeta[W] = {};
  if (channel < channels) {
    const ChannelAffine<M, W> affine(of, channel);
    M value[W], gradient[W];
    for (int64_t row = begin + threadIdx.y; row < end; row += blockDim.y) {
      load_columns<W>(x + row * channels + channel, value);
      load_columns<W>(dy + row * channels + channel, gradient);
      for (int j = 0; j < W; ++j) {
        const M through = affine.gradient(value[j], gradient[j], j);
        dgamma[j] += through * ((value[j] - affine.own_mean[j]) * affine.rstd[j]);
        dbeta[j] += through;
      }
    }
  }
  M* out = partial + 2 * channels * blockIdx.y;
  add_parts(dgamma, dbeta, channels, [&](int64_t c, M first, M second) {
    out[c] = first;
    out[channels + c] = second;
  });
}

// dx = γ/√(variance + ε)·(dy − dβ/n − x̂·dγ/n) (Ioffe & Szegedy 2015).
template <typename T, int W>
__global__ void input_gradient_kernel(const T* x, const T* dy, NormParameters<MathOf<T>> of,
                                      const MathOf<T>* dgamma, const MathOf<T>* dbeta, T* dx,
                                      int64_t rows, int64_t channels) {
  using M = MathOf<T>;
  const int64_t channel = own_columns<W>();
  if (channel >= channels) return;
  const ChannelAffine<M, W> affine(of, channel);
  const M share = M(1) / static_cast<M>(rows);
  M along[W], even[W];
  for (int j = 0; j < W; ++j) {
    along[j] = share * dgamma[channel + j];
    even[j] = share * dbeta[channel + j];
  }
  for (int64_t row = blockIdx.y * blockDim.y + threadIdx.y; row < rows;
       row += static_cast<int64_t>(gridDim.y) * blockDim.y) {
    const int64_t at = row * channels + channel;
    M value[W], gradient[W];
    load_columns<W>(x + at, value);
    load_columns<W>(dy + at, gradient);
    for (int j = 0; j < W; ++j) {
      const M through = affine.gradient(value[j], gradient[j], j);
      const M normalised = (value[j] - affine.own_mean[j]) * affine.rstd[j];
      value[j] = affine.scale[j] * (through - even[j] - normalised * along[j]);
    }
    store_columns<W>(value, dx + at);
  }
}

template <typename M>
NormParameters<M> norm_affine(const BatchNormCall& c, const M* gamma, const M* beta, const M* mean,
                              const M* variance) {
  return {gamma, beta, mean, variance, static_cast<M>(c.epsilon), c.relu};
}

template <typename T>
void statistics(const BatchNormCall& c, const T* x, MathOf<T>* mean, MathOf<T>* variance,
                MathOf<T>* partial, CudaStream stream) {
  const int64_t chunk = chunk_rows(c.rows), chunks = chunk_count(c.rows);
  with_width<T>(rows_in_packs<T>(c.channels, {x}), [&]<int W>(std::integral_constant<int, W>) {
    const ColumnGrid tiles(c.channels, W, chunks);
    DLTRAIN_LAUNCH((statistics_kernel<T, W>), tiles.grid, tiles.block, stream, x, partial, c.rows,
                   c.channels, chunk);
  });
  const ColumnGrid join = ColumnGrid::join(c.channels);
  DLTRAIN_LAUNCH(join_statistics_kernel<MathOf<T>>, join.grid, join.block, stream,
                 static_cast<const MathOf<T>*>(partial), mean, variance, c.rows, c.channels, chunk,
                 chunks);
}

// `residual` may be nullptr; y may be x.
template <typename T>
void normalise(const BatchNormCall& c, const T* x, const NormParameters<MathOf<T>>& affine,
               const T* residual, T* y, CudaStream stream) {
  const bool packs = rows_in_packs<T>(c.channels, {x, y, residual != nullptr ? residual : x});
  with_width<T>(packs, [&]<int W>(std::integral_constant<int, W>) {
    const ColumnGrid tiles = ColumnGrid::over_rows(c.channels, W, c.rows);
    DLTRAIN_LAUNCH((normalise_kernel<T, W>), tiles.grid, tiles.block, stream, x, affine, residual,
                   y, c.rows, c.channels);
  });
}

template <typename T>
void batch_norm_gradient(const BatchNormCall& c, const Bindings& b, CudaStream stream) {
  using M = MathOf<T>;
  const T *x = b.input<T>(0), *dy = b.input<T>(1);
  T* dx = b.output<T>(0);
  M *dgamma = b.output<M>(1), *dbeta = b.output<M>(2), *partial = static_cast<M*>(b.workspace);
  const NormParameters<M> affine =
      norm_affine(c, b.input<M>(2), c.relu ? b.input<M>(5) : nullptr, b.input<M>(3), b.input<M>(4));
  const int64_t chunk = chunk_rows(c.rows), chunks = chunk_count(c.rows);
  const bool packs = rows_in_packs<T>(c.channels, {x, dy, dx});
  with_width<T>(packs, [&]<int W>(std::integral_constant<int, W>) {
    const ColumnGrid tiles(c.channels, W, chunks);
    DLTRAIN_LAUNCH((gradient_sums_kernel<T, W>), tiles.grid, tiles.block, stream, x, dy, affine,
                   partial, c.rows, c.channels, chunk);
    const ColumnGrid join = ColumnGrid::join(c.channels);
    DLTRAIN_LAUNCH(join_pairs_kernel<M>, join.grid, join.block, stream,
                   static_cast<const M*>(partial), dgamma, dbeta, c.channels, chunks);
    const ColumnGrid all = ColumnGrid::over_rows(c.channels, W, c.rows);
    DLTRAIN_LAUNCH((input_gradient_kernel<T, W>), all.grid, all.block, stream, x, dy, affine,
                   static_cast<const M*>(dgamma), static_cast<const M*>(dbeta), dx, c.rows,
                   c.channels);
  });
}

// A kernel run(call, bindings, stream, number) with a number of the dtype of x. `sums`: the
// workspace contains the partial sums of all chunks.
template <typename Run>
std::unique_ptr<Kernel> make_batch_norm(const KernelRequest& request, bool sums, const Run& run) {
  const TensorSpec& x = request.inputs[0];
  if (request.outputs[0].shape.elements() == 0) return nullptr;
  const BatchNormCall c{.dtype = x.dtype,
                        .rows = x.shape.elements() / x.shape[-1],
                        .channels = x.shape[-1],
                        .epsilon = request.attributes.number("epsilon", 1e-5),
                        .relu = request.attributes.text("activation") == "relu"};
  const int64_t partial = sums ? 2 * c.channels * chunk_count(c.rows) : 0;
  const auto launch = [c, run](const Bindings& b, Stream& stream) {
    with_floating(c.dtype, [&](auto number) { run(c, b, stream.native(), number); });
  };
  return make_kernel(launch,
                     static_cast<size_t>(partial) * dtype_size(accumulation_dtype(c.dtype)));
}

}  // namespace

// (x, gamma, beta, optional residual) → y, mean, variance.
std::unique_ptr<Kernel> make_cuda_batch_norm(const KernelRequest& request) {
  return make_batch_norm(
      request, true,
      []<typename T>(const BatchNormCall& c, const Bindings& b, CudaStream stream, T) {
        using M = MathOf<T>;
        statistics<T>(c, b.input<T>(0), b.output<M>(1), b.output<M>(2),
                      static_cast<M*>(b.workspace), stream);
        normalise<T>(c, b.input<T>(0),
                     norm_affine(c, b.input<M>(1), b.input<M>(2), b.output<M>(1), b.output<M>(2)),
                     b.input<T>(3), b.output<T>(0), stream);
      });
}

// (x, dy, gamma, mean, variance, beta with relu) → dx, dgamma, dbeta.
std::unique_ptr<Kernel> make_cuda_batch_norm_backward(const KernelRequest& request) {
  return make_batch_norm(
      request, true,
      []<typename T>(const BatchNormCall& c, const Bindings& b, CudaStream stream, T) {
        batch_norm_gradient<T>(c, b, stream);
      });
}

// (x, gamma, beta, mean, variance) → y.
std::unique_ptr<Kernel> make_cuda_batch_norm_inference(const KernelRequest& request) {
  return make_batch_norm(
      request, false,
      []<typename T>(const BatchNormCall& c, const Bindings& b, CudaStream stream, T) {
        using M = MathOf<T>;
        normalise<T>(c, b.input<T>(0),
                     norm_affine(c, b.input<M>(1), b.input<M>(2), b.input<M>(3), b.input<M>(4)),
                     static_cast<const T*>(nullptr), b.output<T>(0), stream);
      });
}

}  // namespace dltrain

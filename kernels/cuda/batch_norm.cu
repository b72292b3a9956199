// Batch normalisation. One read of x gives the statistics: within a chunk of rows, sums of x − K
// and (x − K)² around the chunk's first value K of the channel, which keeps the difference of two
// large numbers away; chunks are then joined in order in double (Chan, Golub & LeVeque 1979).
#include <cmath>

#include "cuda/batch_norm.h"
#include "cuda/column_sums.cuh"

namespace dltrain {
namespace {

constexpr int kBlock = 256;
constexpr int64_t kChunkRows = 512, kMostChunks = 256;

int64_t chunk_rows(int64_t rows) {
  const int64_t even = divide_up(rows, kMostChunks);
  return even < kChunkRows ? kChunkRows : even;
}
int64_t chunk_count(int64_t rows) {
  return divide_up(rows, chunk_rows(rows));
}

// partial[chunk] = {mean [channels], sum of squared distances from it [channels]}.
template <typename T>
__global__ void statistics_kernel(const T* x, T* partial, int64_t rows, int64_t channels,
                                  int64_t chunk) {
  const int lane = static_cast<int>(threadIdx.x), part = static_cast<int>(threadIdx.y);
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kTileColumns + lane;
  const int64_t begin = blockIdx.y * chunk;
  const int64_t end = begin + chunk < rows ? begin + chunk : rows;
  T sum = 0, squares = 0, centre = 0;
  if (channel < channels) {
    centre = x[begin * channels + channel];
    for (int64_t row = begin + part; row < end; row += kTileRows) {
      const T distance = x[row * channels + channel] - centre;
      sum += distance;
      squares += distance * distance;
    }
  }
  add_parts(sum, squares, part, lane);
  if (part != 0 || channel >= channels) return;
  const T count = static_cast<T>(end - begin);
  T* out = partial + 2 * channels * blockIdx.y;
  out[channel] = centre + sum / count;
  const T spread = squares - sum * sum / count;
  out[channels + channel] = spread < T(0) ? T(0) : spread;
}

template <typename T>
__global__ void join_statistics_kernel(const T* partial, T* mean, T* variance, int64_t rows,
                                       int64_t channels, int64_t chunk, int64_t chunks) {
  const int64_t channel = thread_index();
  if (channel >= channels) return;
  double count = 0, middle = 0, spread = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    const double more = static_cast<double>(i + 1 < chunks ? chunk : rows - i * chunk);
    const double distance = partial[2 * channels * i + channel] - middle;
    middle += distance * more / (count + more);
    spread += partial[2 * channels * i + channels + channel] +
              distance * distance * count * more / (count + more);
    count += more;
  }
  mean[channel] = static_cast<T>(middle);
  variance[channel] = static_cast<T>(spread / count);
}

// What turns x into y. The gradient through relu computes it again, and gets the same bits.
template <typename T>
struct Line {
  const T *gamma, *beta, *mean, *variance;
  T epsilon;
  bool relu;

  __device__ T at(T x, int64_t channel) const {
    const T scale = gamma[channel] / std::sqrt(variance[channel] + epsilon);
    return (x - mean[channel]) * scale + beta[channel];
  }
  // What of dy the forward lets through.
  __device__ T gradient(T x, T dy, int64_t channel) const {
    return !relu || at(x, channel) > T(0) ? dy : T(0);
  }
};

template <typename T>
__global__ void normalise_kernel(const T* x, Line<T> line, const T* residual, T* y, int64_t count,
                                 int64_t channels) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    T value = line.at(x[i], i % channels);
    if (residual != nullptr) value += residual[i];
    y[i] = line.relu && value < T(0) ? T(0) : value;
  }
}

// partial[chunk] = {Σ dy·x̂ [channels], Σ dy [channels]} with x̂ = (x − mean)/√(variance + ε).
template <typename T>
__global__ void gradient_sums_kernel(const T* x, const T* dy, Line<T> line, T* partial,
                                     int64_t rows, int64_t channels, int64_t chunk) {
  const int lane = static_cast<int>(threadIdx.x), part = static_cast<int>(threadIdx.y);
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kTileColumns + lane;
  const int64_t begin = blockIdx.y * chunk;
  const int64_t end = begin + chunk < rows ? begin + chunk : rows;
  T dgamma = 0, dbeta = 0;
  if (channel < channels) {
    const T middle = line.mean[channel];
    const T scale = T(1) / std::sqrt(line.variance[channel] + line.epsilon);
    for (int64_t row = begin + part; row < end; row += kTileRows) {
      const T value = x[row * channels + channel];
      const T gradient = line.gradient(value, dy[row * channels + channel], channel);
      dgamma += gradient * ((value - middle) * scale);
      dbeta += gradient;
    }
  }
  add_parts(dgamma, dbeta, part, lane);
  if (part != 0 || channel >= channels) return;
  T* out = partial + 2 * channels * blockIdx.y;
  out[channel] = dgamma;
  out[channels + channel] = dbeta;
}

// dx = γ/√(variance + ε)·(dy − dβ/n − x̂·dγ/n) (Ioffe & Szegedy 2015).
template <typename T>
__global__ void input_gradient_kernel(const T* x, const T* dy, Line<T> line, const T* dgamma,
                                      const T* dbeta, T* dx, int64_t rows, int64_t channels) {
  const T share = T(1) / static_cast<T>(rows);
  for (int64_t i = thread_index(); i < rows * channels; i += thread_count()) {
    const int64_t channel = i % channels;
    const T scale = T(1) / std::sqrt(line.variance[channel] + line.epsilon);
    const T normalised = (x[i] - line.mean[channel]) * scale;
    const T gradient = line.gradient(x[i], dy[i], channel);
    dx[i] = line.gamma[channel] * scale *
            (gradient - share * dbeta[channel] - normalised * (share * dgamma[channel]));
  }
}

template <typename T>
struct Typed {
  static const T* in(const void* pointer) { return static_cast<const T*>(pointer); }
  static T* out(void* pointer) { return static_cast<T*>(pointer); }

  static dim3 tiles(const BatchNormCall& c) {
    return dim3(static_cast<unsigned>(divide_up(c.channels, kTileColumns)),
                static_cast<unsigned>(chunk_count(c.rows)));
  }
  static unsigned channel_blocks(const BatchNormCall& c) {
    return static_cast<unsigned>(divide_up(c.channels, kBlock));
  }

  static Line<T> line(const BatchNormCall& c, const void* gamma, const void* beta, const void* mean,
                      const void* variance) {
    return {in(gamma), in(beta), in(mean), in(variance), static_cast<T>(c.epsilon), c.relu};
  }

  static void normalise(const BatchNormCall& c, const void* x, const void* gamma, const void* beta,
                        const void* residual, const void* mean, const void* variance, void* y,
                        CudaStream stream) {
    const int64_t count = c.rows * c.channels;
    DLTRAIN_LAUNCH(normalise_kernel<T>, stride_grid(count, kBlock), kBlock, stream, in(x),
                   line(c, gamma, beta, mean, variance), in(residual), out(y), count, c.channels);
  }

  static void forward(const BatchNormCall& c, const void* x, const void* gamma, const void* beta,
                      const void* residual, void* y, void* mean, void* variance, void* workspace,
                      CudaStream stream) {
    const int64_t chunk = chunk_rows(c.rows);
    DLTRAIN_LAUNCH(statistics_kernel<T>, tiles(c), dim3(kTileColumns, kTileRows), stream, in(x),
                   out(workspace), c.rows, c.channels, chunk);
    DLTRAIN_LAUNCH(join_statistics_kernel<T>, channel_blocks(c), kBlock, stream, in(workspace),
                   out(mean), out(variance), c.rows, c.channels, chunk, chunk_count(c.rows));
    normalise(c, x, gamma, beta, residual, mean, variance, y, stream);
  }

  static void backward(const BatchNormCall& c, const void* x, const void* dy, const void* gamma,
                       const void* beta, const void* mean, const void* variance, void* dx,
                       void* dgamma, void* dbeta, void* workspace, CudaStream stream) {
    const Line<T> through = line(c, gamma, beta, mean, variance);
    DLTRAIN_LAUNCH(gradient_sums_kernel<T>, tiles(c), dim3(kTileColumns, kTileRows), stream, in(x),
                   in(dy), through, out(workspace), c.rows, c.channels, chunk_rows(c.rows));
    DLTRAIN_LAUNCH(join_pairs_kernel<T>, channel_blocks(c), kBlock, stream, in(workspace),
                   out(dgamma), out(dbeta), c.channels, chunk_count(c.rows));
    DLTRAIN_LAUNCH(input_gradient_kernel<T>, stride_grid(c.rows * c.channels, kBlock), kBlock,
                   stream, in(x), in(dy), through, in(dgamma), in(dbeta), out(dx), c.rows,
                   c.channels);
  }
};

}  // namespace

int64_t batch_norm_workspace_elements(const BatchNormCall& call) {
  return 2 * call.channels * chunk_count(call.rows);
}

void launch_batch_norm(const BatchNormCall& call, const void* x, const void* gamma,
                       const void* beta, const void* residual, void* y, void* mean, void* variance,
                       void* workspace, CudaStream stream) {
  (call.dtype == DType::f64 ? Typed<double>::forward : Typed<float>::forward)(
      call, x, gamma, beta, residual, y, mean, variance, workspace, stream);
}

void launch_batch_norm_backward(const BatchNormCall& call, const void* x, const void* dy,
                                const void* gamma, const void* beta, const void* mean,
                                const void* variance, void* dx, void* dgamma, void* dbeta,
                                void* workspace, CudaStream stream) {
  (call.dtype == DType::f64 ? Typed<double>::backward : Typed<float>::backward)(
      call, x, dy, gamma, beta, mean, variance, dx, dgamma, dbeta, workspace, stream);
}

void launch_batch_norm_inference(const BatchNormCall& call, const void* x, const void* gamma,
                                 const void* beta, const void* mean, const void* variance, void* y,
                                 CudaStream stream) {
  (call.dtype == DType::f64 ? Typed<double>::normalise : Typed<float>::normalise)(
      call, x, gamma, beta, nullptr, mean, variance, y, stream);
}

}  // namespace dltrain

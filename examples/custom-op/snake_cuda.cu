// The CUDA kernels. Sums are made in a fixed order without atomics: equal runs give equal bits.
#include "snake_cuda.h"

namespace {

constexpr int kBlock = 256;

unsigned blocks_for(int64_t count) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  return static_cast<unsigned>(blocks < 2112 ? blocks : 2112);
}

// The sum of the threads' values, in thread 0.
template <typename T>
__device__ T block_sum(T own) {
  __shared__ T values[kBlock];
  values[threadIdx.x] = own;
  for (int half = kBlock / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  return values[0];
}

__global__ void snake_kernel(int64_t count, int64_t channels, const float* x, const float* alpha,
                             float* y) {
  for (int64_t i = blockIdx.x * int64_t{kBlock} + threadIdx.x; i < count;
       i += int64_t{kBlock} * gridDim.x) {
    const float a = alpha[i % channels], sine = sinf(a * x[i]);
    y[i] = x[i] + sine * sine / a;
  }
}

// A block for each channel.
__global__ void snake_backward_kernel(int64_t count, int64_t channels, const float* x,
                                      const float* alpha, const float* dy, float* dx,
                                      float* dalpha) {
  const int64_t channel = blockIdx.x;
  const float a = alpha[channel];
  float sum = 0;
  for (int64_t i = channel + threadIdx.x * channels; i < count; i += kBlock * channels) {
    const float sine = sinf(a * x[i]), slope = sinf(2 * a * x[i]);
    dx[i] = dy[i] * (1 + slope);
    sum += dy[i] * (x[i] * slope - sine * sine / a) / a;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) dalpha[channel] = sum;
}

__global__ void quantile_kernel(int64_t count, double q, const float* x, const float* targets,
                                double* loss) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kBlock) {
    const double d = double(targets[i]) - double(x[i]);
    if (!isnan(targets[i])) sum += fmax(q * d, (q - 1) * d);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) *loss = sum;
}

__global__ void quantile_backward_kernel(int64_t count, double q, const float* x,
                                         const float* targets, const double* dloss, float* dx) {
  for (int64_t i = blockIdx.x * int64_t{kBlock} + threadIdx.x; i < count;
       i += int64_t{kBlock} * gridDim.x) {
    const double slope = targets[i] > x[i] ? -q : 1 - q;
    dx[i] = isnan(targets[i]) ? 0.0f : static_cast<float>(slope * *dloss);
  }
}

}  // namespace

int launch_snake(int64_t count, int64_t channels, const float* x, const float* alpha, float* y,
                 void* stream) {
  snake_kernel<<<blocks_for(count), kBlock, 0, static_cast<cudaStream_t>(stream)>>>(count, channels,
                                                                                    x, alpha, y);
  return cudaGetLastError();
}

int launch_snake_backward(int64_t count, int64_t channels, const float* x, const float* alpha,
                          const float* dy, float* dx, float* dalpha, void* stream) {
  snake_backward_kernel<<<static_cast<unsigned>(channels), kBlock, 0,
                          static_cast<cudaStream_t>(stream)>>>(count, channels, x, alpha, dy, dx,
                                                               dalpha);
  return cudaGetLastError();
}

int launch_quantile(int64_t count, double q, const float* x, const float* targets, double* loss,
                    void* stream) {
  quantile_kernel<<<1, kBlock, 0, static_cast<cudaStream_t>(stream)>>>(count, q, x, targets, loss);
  return cudaGetLastError();
}

int launch_quantile_backward(int64_t count, double q, const float* x, const float* targets,
                             const double* dloss, float* dx, void* stream) {
  quantile_backward_kernel<<<blocks_for(count), kBlock, 0, static_cast<cudaStream_t>(stream)>>>(
      count, q, x, targets, dloss, dx);
  return cudaGetLastError();
}

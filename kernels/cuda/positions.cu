// Angles are computed in double and brought into one turn before sine and cosine, so that far
// tokens are as exact as near ones.
#include <cmath>

#include "cuda/device_code.cuh"
#include "cuda/positions.h"

namespace dltrain {
namespace {

constexpr int kBlock = 256;

// Where token `row` of [samples, tokens] stands.
__device__ int64_t place_of(int64_t row, int64_t tokens, const int32_t* places) {
  return row % tokens + (places == nullptr ? 0 : places[row / tokens]);
}

// A thread turns one pair of every head of a token, or copies one element that does not turn.
template <typename T>
__global__ void rotary_kernel(RotaryCall c, const T* x, const int32_t* places, T* y) {
  using M = MathOf<T>;
  constexpr double kTurn = 6.283185307179586476925;
  const int64_t still = c.head_dim - 2 * c.pairs, width = c.pairs + still;
  for (int64_t i = thread_index(); i < c.rows * width; i += thread_count()) {
    const int64_t row = i / width, k = i % width;
    const int64_t first = row * c.heads * c.head_dim;
    if (k >= c.pairs) {
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t at = first + h * c.head_dim + c.pairs + k;
        y[at] = x[at];
      }
      continue;
    }
    const double angle = static_cast<double>(place_of(row, c.tokens, places)) * c.frequency[k];
    const M within = static_cast<M>(angle - kTurn * std::floor(angle / kTurn));
    const M cosine = std::cos(within), sine = static_cast<M>(c.sign) * std::sin(within);
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t at = first + h * c.head_dim + k;
      const M a = static_cast<M>(x[at]), b = static_cast<M>(x[at + c.pairs]);
      y[at] = static_cast<T>(a * cosine - b * sine);
      y[at + c.pairs] = static_cast<T>(b * cosine + a * sine);
    }
  }
}

template <typename T>
__global__ void sinusoid_kernel(SinusoidCall c, const T* x, const int32_t* places, T* y) {
  using M = MathOf<T>;
  for (int64_t i = thread_index(); i < c.count; i += thread_count()) {
    const int64_t channel = i % c.width, token = place_of(i / c.width, c.tokens, places);
    const double exponent =
        static_cast<double>(channel - channel % 2) / static_cast<double>(c.width);
    const double angle = static_cast<double>(token) / std::pow(10000.0, exponent);
    const double added = channel % 2 == 0 ? std::sin(angle) : std::cos(angle);
    y[i] = static_cast<T>(static_cast<M>(x[i]) + static_cast<M>(added));
  }
}

}  // namespace

void launch_rotary(const RotaryCall& call, const void* x, const int32_t* places, void* y,
                   CudaStream stream) {
  const int64_t threads = call.rows * (call.head_dim - call.pairs);
  if (threads * call.heads == 0) return;
  with_floating(call.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH(rotary_kernel<T>, stride_grid(threads, kBlock), kBlock, stream, call,
                   static_cast<const T*>(x), places, static_cast<T*>(y));
  });
}

void launch_sinusoidal_positions(const SinusoidCall& call, const void* x, const int32_t* places,
                                 void* y, CudaStream stream) {
  if (call.count == 0) return;
  with_floating(call.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH(sinusoid_kernel<T>, stride_grid(call.count, kBlock), kBlock, stream, call,
                   static_cast<const T*>(x), places, static_cast<T*>(y));
  });
}

}  // namespace dltrain

// rotary and sinusoidal_positions (lib/ops/positions.cpp); y may be x. Angles are computed in
// double and reduced to one turn before sine and cosine, so that late tokens are as exact as early
// ones.
#include <algorithm>
#include <cmath>

#include "cuda/column_sums.cuh"
#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "ops/positions.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct RotaryCall {
  static constexpr int kMaxPairs = 256;
  DType dtype = DType::f32;
  int64_t rows = 0;  // samples · tokens
  int64_t tokens = 0, heads = 0, head_dim = 0;
  int pairs = 0;                // rotated pairs; elements after 2·pairs are copied
  double sign = 1;              // −1: inverse rotation
  double frequency[kMaxPairs];  // radians per token
  TokenPositions positions = {};
};

struct SinusoidCall {
  DType dtype = DType::f32;
  int64_t count = 0, tokens = 0, width = 0;
  TokenPositions positions = {};
};

constexpr int kBlock = 128;

// Returns the position of token `row` of [samples, tokens].
__device__ int64_t position_of(int64_t row, int64_t tokens, const TokenPositions& positions,
                               const int32_t* offsets) {
  return positions(row % tokens) + (offsets == nullptr ? 0 : offsets[row / tokens]);
}

// A thread rotates W adjacent pairs of every head of a token, or copies W elements that are not
// rotated.
template <typename T, int W>
__global__ void rotary_kernel(RotaryCall c, const T* x, const int32_t* offsets, T* y) {
  using M = MathOf<T>;
  constexpr double kTurn = 6.283185307179586476925;
  const int64_t width = (c.head_dim - c.pairs) / W;
  for (int64_t i = thread_index(); i < c.rows * width; i += thread_count()) {
    const int64_t row = i / width, k = i % width * W;
    const int64_t first = row * c.heads * c.head_dim + k;
    M a[W], b[W], cosine[W], sine[W];
    if (k >= c.pairs) {
      for (int64_t h = 0; h < c.heads; ++h) {
        load_elements<T, W>(x, first + h * c.head_dim + c.pairs, a);
        store_elements<T, W>(a, y, first + h * c.head_dim + c.pairs);
      }
      continue;
    }
    const auto position = static_cast<double>(position_of(row, c.tokens, c.positions, offsets));
    for (int j = 0; j < W; ++j) {
      const double angle = position * c.frequency[k + j];
      const M within = static_cast<M>(angle - kTurn * std::floor(angle / kTurn));
      cosine[j] = std::cos(within);
      sine[j] = static_cast<M>(c.sign) * std::sin(within);
    }
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t at = first + h * c.head_dim;
      load_elements<T, W>(x, at, a);
      load_elements<T, W>(x, at + c.pairs, b);
      M up[W], down[W];
      for (int j = 0; j < W; ++j) {
        up[j] = a[j] * cosine[j] - b[j] * sine[j];
        down[j] = b[j] * cosine[j] + a[j] * sine[j];
      }
      store_elements<T, W>(up, y, at);
      store_elements<T, W>(down, y, at + c.pairs);
    }
  }
}

template <typename T>
__global__ void sinusoid_kernel(SinusoidCall c, const T* x, const int32_t* offsets, T* y) {
  using M = MathOf<T>;
  for (int64_t i = thread_index(); i < c.count; i += thread_count()) {
    const int64_t channel = i % c.width,
                  token = position_of(i / c.width, c.tokens, c.positions, offsets);
    const double exponent =
        static_cast<double>(channel - channel % 2) / static_cast<double>(c.width);
    const double angle = static_cast<double>(token) / std::pow(10000.0, exponent);
    const double added = channel % 2 == 0 ? std::sin(angle) : std::cos(angle);
    y[i] = static_cast<T>(static_cast<M>(x[i]) + static_cast<M>(added));
  }
}

}  // namespace

// The optional second input, i32, is the position of the first token of each sample; default 0.
std::unique_ptr<Kernel> make_cuda_rotary(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  const std::vector<double> frequencies =
      rotary_frequencies(request.attributes, rotary_dim(x, request.attributes));
  if (frequencies.size() > RotaryCall::kMaxPairs) return nullptr;
  RotaryCall call{};
  call.dtype = x.dtype;
  call.rows = x.shape[0] * x.shape[1];
  call.tokens = x.shape[1];
  call.heads = x.shape[2];
  call.head_dim = x.shape[3];
  call.pairs = static_cast<int>(frequencies.size());
  call.positions = TokenPositions(request.attributes);
  call.sign = request.attributes.boolean("inverse") ? -1 : 1;
  std::copy(frequencies.begin(), frequencies.end(), call.frequency);
  const int64_t elements = call.rows * (call.head_dim - call.pairs);
  return make_kernel([call, elements](const Bindings& b, Stream& stream) {
    if (elements * call.heads == 0) return;
    with_floating(call.dtype, [&]<typename T>(T) {
      const bool packs = call.pairs % Pack<T>::size == 0 &&
                         rows_in_packs<T>(call.head_dim, {b.inputs[0], b.outputs[0]});
      with_width<T>(packs, [&]<int W>(std::integral_constant<int, W>) {
        DLTRAIN_LAUNCH((rotary_kernel<T, W>), stride_grid(elements / W, kBlock), kBlock,
                       stream.native(), call, b.input<T>(0), b.input<int32_t>(1), b.output<T>(0));
      });
    });
  });
}

std::unique_ptr<Kernel> make_cuda_sinusoidal_positions(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  const SinusoidCall call{.dtype = x.dtype,
                          .count = x.shape.elements(),
                          .tokens = x.shape[1],
                          .width = x.shape[2],
                          .positions = TokenPositions(request.attributes)};
  return make_kernel([call](const Bindings& b, Stream& stream) {
    if (call.count == 0) return;
    with_floating(call.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(sinusoid_kernel<T>, stride_grid(call.count, kBlock), kBlock, stream.native(),
                     call, b.input<T>(0), b.input<int32_t>(1), b.output<T>(0));
    });
  });
}

}  // namespace dltrain

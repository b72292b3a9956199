// One thread an output element; neighbours in a warp are neighbouring channels. Gradients gather,
// so that overlapping windows add in a fixed order.
#include "cuda/device_code.cuh"
#include "cuda/image_maps.h"

namespace dltrain {
namespace {

constexpr int kBlock = 256;

// The place of element i of [N, extent[0], extent[1], C].
struct Place {
  int64_t n, h, w, channel;
  __device__ Place(int64_t i, const int64_t* extent, int64_t channels)
      : n(i / (channels * extent[1] * extent[0])),
        h(i / (channels * extent[1]) % extent[0]),
        w(i / channels % extent[1]),
        channel(i % channels) {}
};

// Calls f(row, column, weight) for every input of one output.
template <typename F>
__device__ void visit(const ImageMapCall& c, const Place& p, const F& f) {
  for (int64_t a = c.map[0].begin[p.h]; a < c.map[0].begin[p.h + 1]; ++a) {
    for (int64_t b = c.map[1].begin[p.w]; b < c.map[1].begin[p.w + 1]; ++b) {
      f(c.map[0].index[a], c.map[1].index[b], c.map[0].weight[a] * c.map[1].weight[b]);
    }
  }
}

template <typename T>
__global__ void image_map_kernel(ImageMapCall c, const T* x, T* y, int64_t count) {
  using M = MathOf<T>;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const Place p(i, c.out, c.channels);
    M sum = 0;
    visit(c, p, [&](int64_t row, int64_t column, double weight) {
      const int64_t at = ((p.n * c.in[0] + row) * c.in[1] + column) * c.channels + p.channel;
      sum += static_cast<M>(weight) * static_cast<M>(x[at]);
    });
    y[i] = static_cast<T>(sum);
  }
}

template <typename T>
__global__ void adaptive_max_kernel(ImageMapCall c, const T* x, T* y, int32_t* position,
                                    int64_t count) {
  using M = MathOf<T>;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const Place p(i, c.out, c.channels);
    M greatest = 0;
    int64_t winner = -1;
    visit(c, p, [&](int64_t row, int64_t column, double) {
      const int64_t place = row * c.in[1] + column;
      const M value = static_cast<M>(x[(p.n * c.in[0] * c.in[1] + place) * c.channels + p.channel]);
      if (winner < 0 || value > greatest || value != value) {
        greatest = value;
        winner = place;
      }
    });
    y[i] = static_cast<T>(greatest);
    position[i] = static_cast<int32_t>(winner);
  }
}

template <typename T>
__global__ void adaptive_max_backward_kernel(ImageMapCall c, const T* dy, const int32_t* position,
                                             T* dx, int64_t count) {
  using M = MathOf<T>;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const Place p(i, c.in, c.channels);
    M sum = 0;
    visit(c, p, [&](int64_t row, int64_t column, double) {
      const int64_t at = ((p.n * c.out[0] + row) * c.out[1] + column) * c.channels + p.channel;
      if (position[at] == p.h * c.in[1] + p.w) sum += static_cast<M>(dy[at]);
    });
    dx[i] = static_cast<T>(sum);
  }
}

int64_t elements(const ImageMapCall& c, const int64_t* extent) {
  return c.samples * extent[0] * extent[1] * c.channels;
}

}  // namespace

void launch_image_map(const ImageMapCall& c, const void* x, void* y, CudaStream stream) {
  const int64_t count = elements(c, c.out);
  if (count == 0) return;
  with_floating(c.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH(image_map_kernel<T>, stride_grid(count, kBlock), kBlock, stream, c,
                   static_cast<const T*>(x), static_cast<T*>(y), count);
  });
}

void launch_adaptive_max_pool2d(const ImageMapCall& c, const void* x, void* y, int32_t* position,
                                CudaStream stream) {
  const int64_t count = elements(c, c.out);
  if (count == 0) return;
  with_floating(c.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH(adaptive_max_kernel<T>, stride_grid(count, kBlock), kBlock, stream, c,
                   static_cast<const T*>(x), static_cast<T*>(y), position, count);
  });
}

void launch_adaptive_max_pool2d_backward(const ImageMapCall& c, const void* dy,
                                         const int32_t* position, void* dx, CudaStream stream) {
  const int64_t count = elements(c, c.in);
  if (count == 0) return;
  with_floating(c.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH(adaptive_max_backward_kernel<T>, stride_grid(count, kBlock), kBlock, stream, c,
                   static_cast<const T*>(dy), position, static_cast<T*>(dx), count);
  });
}

}  // namespace dltrain

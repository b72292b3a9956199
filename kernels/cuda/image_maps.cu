// avg_pool2d, upsample2d, adaptive_max_pool2d and their gradients over images [N, H, W, C] (maps:
// lib/ops/image_maps.h). One thread per output element; adjacent threads have adjacent channels.
// Gradients gather, so that overlapping windows are added in a fixed order.
#include <utility>

#include "cuda/device_code.cuh"
#include "cuda/device_table.h"
#include "cuda/makers.h"
#include "ops/image_maps.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// An AxisMap in device memory.
struct DeviceAxisMap {
  const int64_t *begin = nullptr, *index = nullptr;
  const double* weight = nullptr;
};

struct ImageMapCall {
  DType dtype = DType::f32;
  int64_t samples = 0, channels = 0;
  int64_t in[2] = {}, out[2] = {};  // height, width of the forward's images
  // From x to y; in gradients the transposed maps, which list the windows that contain an element.
  DeviceAxisMap map[2];
};

constexpr int kBlock = 256;

// The indices of element i of [N, extent[0], extent[1], C].
struct PixelIndex {
  int64_t n, h, w, channel;
  __device__ PixelIndex(int64_t i, const int64_t* extent, int64_t channels)
      : n(i / (channels * extent[1] * extent[0])),
        h(i / (channels * extent[1]) % extent[0]),
        w(i / channels % extent[1]),
        channel(i % channels) {}
};

// Calls f(row, column, weight) for every input of one output.
template <typename F>
__device__ void visit(const ImageMapCall& c, const PixelIndex& p, const F& f) {
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
    const PixelIndex p(i, c.out, c.channels);
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
    const PixelIndex p(i, c.out, c.channels);
    M greatest = 0;
    int64_t winner = -1;
    visit(c, p, [&](int64_t row, int64_t column, double) {
      const int64_t pixel = row * c.in[1] + column;
      const M value = static_cast<M>(x[(p.n * c.in[0] * c.in[1] + pixel) * c.channels + p.channel]);
      if (winner < 0 || value > greatest || value != value) {
        greatest = value;
        winner = pixel;
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
    const PixelIndex p(i, c.in, c.channels);
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

struct MapTables {
  MapTables(Device& device, const AxisMap& map)
      : begin(device, map.begin), index(device, map.index), weight(device, map.weight) {}
  DeviceAxisMap addresses() const { return {begin.data(), index.data(), weight.data()}; }
  DeviceTable<int64_t> begin, index;
  DeviceTable<double> weight;
};

// A kernel run(call, bindings, stream) with the maps of the op in device memory.
template <typename Run>
std::unique_ptr<Kernel> make_map_kernel(const KernelRequest& r, const Run& run) {
  const bool backward = r.op.ends_with("_backward");
  const Shape& x = (backward ? r.outputs[0] : r.inputs[0]).shape;
  const Shape& y = (backward ? r.inputs[0] : r.outputs[0]).shape;
  ImageMaps maps = r.op.starts_with("upsample2d") ? upsampling_maps(x, r.attributes)
                                                  : pooling_maps(r.op, x, r.attributes);
  if (backward) maps = {transposed(maps.height, x[1]), transposed(maps.width, x[2])};
  ImageMapCall call;
  call.dtype = r.inputs[0].dtype;
  call.samples = x[0];
  call.channels = x[3];
  for (int i = 0; i < 2; ++i) {
    call.in[i] = x[i + 1];
    call.out[i] = y[i + 1];
  }
  return make_prepared_kernel(
      [&device = r.device, maps](const Bindings&) {
        return std::pair(MapTables(device, maps.height), MapTables(device, maps.width));
      },
      [call, run](const std::pair<MapTables, MapTables>& tables, const Bindings& b,
                  Stream& stream) {
        ImageMapCall mapped = call;
        mapped.map[0] = tables.first.addresses();
        mapped.map[1] = tables.second.addresses();
        run(mapped, b, stream.native());
      });
}

}  // namespace

// Also serves gradients, which are maps from dy to dx.
std::unique_ptr<Kernel> make_cuda_image_map(const KernelRequest& request) {
  const bool backward = request.op.ends_with("_backward");
  return make_map_kernel(request, [backward](ImageMapCall c, const Bindings& b, CudaStream stream) {
    if (backward) std::swap(c.in, c.out);
    const int64_t count = elements(c, c.out);
    if (count == 0) return;
    with_floating(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(image_map_kernel<T>, stride_grid(count, kBlock), kBlock, stream, c,
                     b.input<T>(0), b.output<T>(0), count);
    });
  });
}

std::unique_ptr<Kernel> make_cuda_adaptive_max_pool2d(const KernelRequest& request) {
  return make_map_kernel(request, [](const ImageMapCall& c, const Bindings& b, CudaStream stream) {
    const int64_t count = elements(c, c.out);
    if (count == 0) return;
    with_floating(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(adaptive_max_kernel<T>, stride_grid(count, kBlock), kBlock, stream, c,
                     b.input<T>(0), b.output<T>(0), b.output<int32_t>(1), count);
    });
  });
}

std::unique_ptr<Kernel> make_cuda_adaptive_max_pool2d_backward(const KernelRequest& request) {
  return make_map_kernel(request, [](const ImageMapCall& c, const Bindings& b, CudaStream stream) {
    const int64_t count = elements(c, c.in);
    if (count == 0) return;
    with_floating(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(adaptive_max_backward_kernel<T>, stride_grid(count, kBlock), kBlock, stream, c,
                     b.input<T>(0), b.input<int32_t>(1), b.output<T>(0), count);
    });
  });
}

}  // namespace dltrain

// Kernel classes of avg_pool2d, upsample2d, adaptive_max_pool2d and their gradients.
#include "cuda/image_maps.h"

#include "cuda/device_table.h"
#include "cuda/makers.h"
#include "ops/image_maps.h"

namespace dltrain {
namespace {

struct MapTables {
  explicit MapTables(Device& device) : begin(device), index(device), weight(device) {}
  DeviceAxisMap upload(const AxisMap& map) {
    return {begin.upload(map.begin), index.upload(map.index), weight.upload(map.weight)};
  }
  DeviceTable<int64_t> begin, index;
  DeviceTable<double> weight;
};

// `x` and `y`: the images of the forward. `gathers`: the kernel looks from x to y.
class MapKernel : public Kernel {
 public:
  MapKernel(const KernelRequest& request, const Shape& x, const Shape& y, ImageMaps maps,
            bool gathers)
      : maps_(std::move(maps)), height_(request.device), width_(request.device) {
    if (gathers) maps_ = {transposed(maps_.height, x[1]), transposed(maps_.width, x[2])};
    call_.dtype = request.inputs[0].dtype;
    call_.samples = x[0];
    call_.channels = x[3];
    for (int i = 0; i < 2; ++i) {
      call_.in[i] = x[i + 1];
      call_.out[i] = y[i + 1];
    }
  }
  void bind(const Bindings& b) override {
    call_.map[0] = height_.upload(maps_.height);
    call_.map[1] = width_.upload(maps_.width);
    x_ = b.inputs[0];
    y_ = b.outputs[0];
  }

 protected:
  ImageMapCall call_;
  const void* x_ = nullptr;
  void* y_ = nullptr;

 private:
  ImageMaps maps_;
  MapTables height_, width_;
};

class ImageMap final : public MapKernel {
 public:
  // The gradient is a map of its own: from dy to dx.
  ImageMap(const KernelRequest& request, const Shape& x, const Shape& y, ImageMaps maps,
           bool backward)
      : MapKernel(request, x, y, std::move(maps), backward) {
    if (!backward) return;
    std::swap(call_.in[0], call_.out[0]);
    std::swap(call_.in[1], call_.out[1]);
  }
  void run(Stream& stream) override { launch_image_map(call_, x_, y_, stream.native()); }
};

class AdaptiveMaxPool final : public MapKernel {
 public:
  using MapKernel::MapKernel;
  void bind(const Bindings& b) override {
    MapKernel::bind(b);
    position_ = static_cast<int32_t*>(b.outputs[1]);
  }
  void run(Stream& stream) override {
    launch_adaptive_max_pool2d(call_, x_, y_, position_, stream.native());
  }

 private:
  int32_t* position_ = nullptr;
};

class AdaptiveMaxPoolBackward final : public MapKernel {
 public:
  using MapKernel::MapKernel;
  void bind(const Bindings& b) override {
    MapKernel::bind(b);
    position_ = static_cast<const int32_t*>(b.inputs[1]);
  }
  void run(Stream& stream) override {
    launch_adaptive_max_pool2d_backward(call_, x_, position_, y_, stream.native());
  }

 private:
  const int32_t* position_ = nullptr;
};

template <typename Made>
std::unique_ptr<Kernel> make_image_maps(const KernelRequest& r) {
  const bool backward = r.op.ends_with("_backward");
  const Shape& x = (backward ? r.outputs[0] : r.inputs[0]).shape;
  const Shape& y = (backward ? r.inputs[0] : r.outputs[0]).shape;
  ImageMaps maps = r.op.starts_with("upsample2d") ? upsampling_maps(x, r.attributes)
                                                  : pooling_maps(r.op, x, r.attributes);
  return std::make_unique<Made>(r, x, y, std::move(maps), backward);
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_image_map(const KernelRequest& request) {
  return make<ImageMap>(request);
}
std::unique_ptr<Kernel> make_cuda_adaptive_max_pool2d(const KernelRequest& request) {
  return make<AdaptiveMaxPool>(request);
}
std::unique_ptr<Kernel> make_cuda_adaptive_max_pool2d_backward(const KernelRequest& request) {
  return make<AdaptiveMaxPoolBackward>(request);
}

}  // namespace dltrain

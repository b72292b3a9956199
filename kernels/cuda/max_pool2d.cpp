// Kernel classes of max_pool2d and its gradient.
#include "cuda/max_pool2d.h"

#include "cuda/makers.h"

namespace dltrain {
namespace {

MaxPoolCall read_max_pool2d_call(const KernelRequest& request, const Shape& x, const Shape& y) {
  MaxPoolCall c{.dtype = request.inputs[0].dtype, .samples = x[0], .channels = x[3]};
  const auto kernel = request.attributes.integers("kernel");
  const auto stride = request.attributes.integers("stride", kernel);
  const auto padding = request.attributes.integers("padding", {0, 0});
  for (size_t axis = 0; axis < 2; ++axis) {
    c.in[axis] = x[static_cast<int>(axis) + 1];
    c.out[axis] = y[static_cast<int>(axis) + 1];
    c.kernel[axis] = kernel[axis];
    c.stride[axis] = stride[axis];
    c.padding[axis] = padding[axis];
  }
  return c;
}

class MaxPool2dForward final : public Kernel {
 public:
  explicit MaxPool2dForward(const KernelRequest& r)
      : call_(read_max_pool2d_call(r, r.inputs[0].shape, r.outputs[0].shape)) {}
  void bind(const Bindings& b) override {
    x_ = b.inputs[0];
    y_ = b.outputs[0];
    position_ = static_cast<uint8_t*>(b.outputs[1]);
  }
  void run(Stream& stream) override {
    launch_max_pool2d(call_, x_, y_, position_, stream.native());
  }

 private:
  MaxPoolCall call_;
  const void* x_ = nullptr;
  void* y_ = nullptr;
  uint8_t* position_ = nullptr;
};

class MaxPool2dBackward final : public Kernel {
 public:
  explicit MaxPool2dBackward(const KernelRequest& r)
      : call_(read_max_pool2d_call(r, r.outputs[0].shape, r.inputs[0].shape)) {}
  void bind(const Bindings& b) override {
    dy_ = b.inputs[0];
    position_ = static_cast<const uint8_t*>(b.inputs[1]);
    dx_ = b.outputs[0];
  }
  void run(Stream& stream) override {
    launch_max_pool2d_backward(call_, dy_, position_, dx_, stream.native());
  }

 private:
  MaxPoolCall call_;
  const void* dy_ = nullptr;
  const uint8_t* position_ = nullptr;
  void* dx_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_max_pool2d(const KernelRequest& request) {
  return std::make_unique<MaxPool2dForward>(request);
}
std::unique_ptr<Kernel> make_cuda_max_pool2d_backward(const KernelRequest& request) {
  return std::make_unique<MaxPool2dBackward>(request);
}

}  // namespace dltrain

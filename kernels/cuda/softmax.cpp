// Kernel classes of softmax, log_softmax and their gradients.
#include "cuda/softmax.h"

#include "cuda/makers.h"

namespace dltrain {
namespace {

SoftmaxCall read_softmax_call(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  const int64_t columns = x.shape[-1];
  return {.dtype = x.dtype,
          .rows = columns == 0 ? 0 : x.shape.elements() / columns,
          .columns = columns,
          .logarithm = request.op.starts_with("log_")};
}

class Softmax final : public Kernel {
 public:
  explicit Softmax(const KernelRequest& request) : call_(read_softmax_call(request)) {}
  void bind(const Bindings& b) override {
    x_ = b.inputs[0];
    y_ = b.outputs[0];
  }
  void run(Stream& stream) override { launch_softmax(call_, x_, y_, stream.native()); }

 private:
  SoftmaxCall call_;
  const void* x_ = nullptr;
  void* y_ = nullptr;
};

class SoftmaxBackward final : public Kernel {
 public:
  explicit SoftmaxBackward(const KernelRequest& request) : call_(read_softmax_call(request)) {}
  void bind(const Bindings& b) override {
    y_ = b.inputs[0];
    dy_ = b.inputs[1];
    dx_ = b.outputs[0];
  }
  void run(Stream& stream) override {
    launch_softmax_backward(call_, y_, dy_, dx_, stream.native());
  }

 private:
  SoftmaxCall call_;
  const void *y_ = nullptr, *dy_ = nullptr;
  void* dx_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_softmax(const KernelRequest& request) {
  return std::make_unique<Softmax>(request);
}
std::unique_ptr<Kernel> make_cuda_softmax_backward(const KernelRequest& request) {
  return std::make_unique<SoftmaxBackward>(request);
}

}  // namespace dltrain

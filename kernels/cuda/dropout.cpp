// Kernel class of dropout and dropout2d.
#include "cuda/dropout.h"

#include "cuda/makers.h"

namespace dltrain {
namespace {

using Launch = void(const DropoutCall&, const void*, const StepState*, void*, CudaStream);

template <Launch launch>
class DropoutKernel final : public Kernel {
 public:
  explicit DropoutKernel(const KernelRequest& request)
      : call_{.dtype = request.inputs[0].dtype,
              .rate = request.attributes.number("rate"),
              .stream = static_cast<uint64_t>(request.attributes.integer("stream")),
              .count = request.inputs[0].shape.elements(),
              .per_sample = request.inputs[0].shape.elements(1, request.inputs[0].shape.rank()),
              .channels = request.inputs[0].shape[-1]} {}
  void bind(const Bindings& bindings) override {
    x_ = bindings.inputs[0];
    state_ = static_cast<const StepState*>(bindings.inputs[1]);
    y_ = bindings.outputs[0];
  }
  void run(Stream& stream) override { launch(call_, x_, state_, y_, stream.native()); }

 private:
  DropoutCall call_;
  const void* x_ = nullptr;
  const StepState* state_ = nullptr;
  void* y_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_dropout(const KernelRequest& request) {
  if (!is_floating(request.inputs[0].dtype)) return nullptr;
  return std::make_unique<DropoutKernel<launch_dropout>>(request);
}

std::unique_ptr<Kernel> make_cuda_dropout2d(const KernelRequest& request) {
  if (!is_floating(request.inputs[0].dtype)) return nullptr;
  return std::make_unique<DropoutKernel<launch_dropout2d>>(request);
}

}  // namespace dltrain

// Kernel classes of rotary and sinusoidal_positions.
#include "cuda/positions.h"

#include <algorithm>

#include "cuda/makers.h"
#include "ops/positions.h"

namespace dltrain {
namespace {

template <typename Call,
          void (*launch)(const Call&, const void*, const int32_t*, void*, CudaStream)>
class PositionKernel final : public Kernel {
 public:
  explicit PositionKernel(const Call& call) : call_(call) {}
  void bind(const Bindings& b) override {
    x_ = b.inputs[0];
    places_ = b.inputs.size() > 1 ? static_cast<const int32_t*>(b.inputs[1]) : nullptr;
    y_ = b.outputs[0];
  }
  void run(Stream& stream) override { launch(call_, x_, places_, y_, stream.native()); }

 private:
  Call call_;
  const void* x_ = nullptr;
  const int32_t* places_ = nullptr;
  void* y_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_rotary(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  const std::vector<double> frequencies =
      rotary_frequencies(request.attributes, rotary_dim(x, request.attributes));
  if (frequencies.size() > RotaryCall::kMostPairs) return nullptr;
  RotaryCall call{};
  call.dtype = x.dtype;
  call.rows = x.shape[0] * x.shape[1];
  call.tokens = x.shape[1];
  call.heads = x.shape[2];
  call.head_dim = x.shape[3];
  call.pairs = static_cast<int>(frequencies.size());
  call.sign = request.attributes.boolean("inverse") ? -1 : 1;
  std::copy(frequencies.begin(), frequencies.end(), call.frequency);
  return std::make_unique<PositionKernel<RotaryCall, launch_rotary>>(call);
}

std::unique_ptr<Kernel> make_cuda_sinusoidal_positions(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  const SinusoidCall call{
      .dtype = x.dtype, .count = x.shape.elements(), .tokens = x.shape[1], .width = x.shape[2]};
  return std::make_unique<PositionKernel<SinusoidCall, launch_sinusoidal_positions>>(call);
}

}  // namespace dltrain

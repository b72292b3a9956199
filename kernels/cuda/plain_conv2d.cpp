// Kernel classes of the plain convolutions.
#include "cuda/plain_conv2d.h"

#include "base/error.h"
#include "cuda/makers.h"
#include "ops/conv2d.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

PlainConv2dCall read_plain_conv2d_call(const KernelRequest& request, const Shape& x, const Shape& w,
                                       const Shape& y) {
  const Conv2dAttributes attributes(request.attributes);
  PlainConv2dCall c{.dtype = request.inputs[0].dtype, .samples = x[0]};
  for (int i = 0; i < 3; ++i) {
    c.in[i] = x[i + 1];
    c.out[i] = y[i + 1];
  }
  for (int i = 0; i < 2; ++i) {
    c.kernel[i] = w[i + 1];
    c.stride[i] = attributes.stride[i];
    c.padding[i] = attributes.padding[i];
    c.dilation[i] = attributes.dilation[i];
  }
  c.groups = attributes.groups;
  return c;
}

class PlainConv2d final : public Kernel {
 public:
  enum Pass { forward, input, weight };

  PlainConv2d(Pass pass, const PlainConv2dCall& call, bool has_bias, bool accumulate)
      : pass_(pass), call_(call), has_bias_(has_bias), accumulate_(accumulate) {}

  void bind(const Bindings& bindings) override {
    first_ = bindings.inputs[0];
    second_ = bindings.inputs[1];
    bias_ = has_bias_ ? bindings.inputs[2] : nullptr;
    out_ = bindings.outputs[0];
  }

  void run(Stream& stream) override {
    switch (pass_) {
      case forward:
        return launch_plain_conv2d(call_, first_, second_, bias_, out_, stream.native());
      case input:
        return launch_plain_conv2d_input(call_, first_, second_, out_, accumulate_,
                                         stream.native());
      case weight:
        return launch_plain_conv2d_weight(call_, first_, second_, out_, accumulate_,
                                          stream.native());
    }
  }

 private:
  Pass pass_;
  PlainConv2dCall call_;
  bool has_bias_, accumulate_;
  const void* first_ = nullptr;
  const void* second_ = nullptr;
  const void* bias_ = nullptr;
  void* out_ = nullptr;
};

bool served_plain_conv2d(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  return (dtype == DType::f32 || dtype == DType::f64) && request.outputs[0].dtype == dtype;
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_plain_conv2d(const KernelRequest& r) {
  if (!served_plain_conv2d(r)) return nullptr;
  PlainConv2dCall call =
      read_plain_conv2d_call(r, r.inputs[0].shape, r.inputs[1].shape, r.outputs[0].shape);
  const std::string name = r.attributes.text("activation");
  const auto activation = elementwise_op(name.empty() ? "identity" : name);
  check_internal(activation.has_value(), "conv2d: activation {}", name);
  call.activation = *activation;
  const bool has_bias = r.inputs.size() == 3 && !is_absent(r.inputs[2]);
  return std::make_unique<PlainConv2d>(PlainConv2d::forward, call, has_bias, false);
}

std::unique_ptr<Kernel> make_cuda_plain_conv2d_input(const KernelRequest& r) {
  if (!served_plain_conv2d(r)) return nullptr;
  return std::make_unique<PlainConv2d>(
      PlainConv2d::input,
      read_plain_conv2d_call(r, r.outputs[0].shape, r.inputs[1].shape, r.inputs[0].shape), false,
      r.accumulate);
}

std::unique_ptr<Kernel> make_cuda_plain_conv2d_weight(const KernelRequest& r) {
  if (!served_plain_conv2d(r)) return nullptr;
  return std::make_unique<PlainConv2d>(
      PlainConv2d::weight,
      read_plain_conv2d_call(r, r.inputs[1].shape, r.outputs[0].shape, r.inputs[0].shape), false,
      r.accumulate);
}

}  // namespace dltrain

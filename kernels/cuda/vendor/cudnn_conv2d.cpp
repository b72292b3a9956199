// conv2d and its gradients by cuDNN. A separate kernel applies bias and activation in place; an
// accumulating gradient, or one that is wider than its operands, is written to the workspace first
// and then added or converted.
//
// Equal convolutions share a plan: the first that cuDNN proposes and that can be built, or with
// autotune the fastest of several.
#include <fmt/format.h>

#include "base/error.h"
#include "cuda/elementwise.h"
#include "cuda/makers.h"
#include "cuda/vendor/autotune.h"
#include "cuda/vendor/cudnn_convolution.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/requests.h"
#include "ops/kernel_refused.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

// x, w and y are those of the forward for every pass; attributes are those of conv2d.
ConvolutionProblem read_convolution(const KernelRequest& request, ConvolutionPass pass,
                                    const Shape& x, const Shape& w, const Shape& y) {
  return {Conv2dSizes(x, w, y, Conv2dAttributes(request.attributes)), pass, request.inputs[0].dtype,
          rounds_to_tf32(request.attributes)};
}

// Returns "convolution forward bf16, 64 of 56x56x64 to …": the key of tuned choices.
std::string key_of_convolution(const ConvolutionProblem& p) {
  const char* pass = p.pass == ConvolutionPass::forward ? "forward"
                     : p.pass == ConvolutionPass::input ? "input"
                                                        : "weight";
  return fmt::format(
      "convolution {} {}, {} of {}x{}x{} to {}x{}x{}, kernel {}x{}, groups {}, stride {}x{}, "
      "padding {}x{}, dilation {}x{}",
      pass, p.tf32 ? "tf32" : dtype_name(p.dtype), p.samples, p.in[0], p.in[1], p.in_channels,
      p.out[0], p.out[1], p.out_channels, p.kernel[0], p.kernel[1], p.groups, p.stride[0],
      p.stride[1], p.padding[0], p.padding[1], p.dilation[0], p.dilation[1]);
}

// The workspace contains cuDNN's part and the temporary result.
constexpr size_t kCudnnConv2dAlignment = 256;

class CudnnConvolution final : public Kernel {
 public:
  struct Options {
    bool has_bias = false, accumulate = false;
    ElementwiseOp activation = ElementwiseOp::identity;
  };

  CudnnConvolution(CudaDevice& device, const ConvolutionProblem& problem,
                   std::shared_ptr<const CudnnPlan> plan, const TensorSpec& output,
                   const Options& options)
      : device_(device),
        problem_(problem),
        plan_(std::move(plan)),
        output_(output),
        options_(options),
        plan_bytes_((plan_->workspace_bytes + kCudnnConv2dAlignment - 1) / kCudnnConv2dAlignment *
                    kCudnnConv2dAlignment) {}

  size_t workspace_bytes() const override {
    return plan_bytes_ + (is_copied() ? TensorSpec{output_.shape, problem_.dtype}.bytes() : 0);
  }

  // cuDNN's list of the addresses, which is expensive to make.
  struct VariantPack final : PreparedBindings {
    explicit VariantPack(CudnnDescriptor made) : descriptor(std::move(made)) {}
    CudnnDescriptor descriptor;
  };
  std::unique_ptr<PreparedBindings> prepare(const Bindings& b) const override {
    void *result = temporary(b), *scratch = plan_->workspace_bytes > 0 ? b.workspace : nullptr;
    switch (problem_.pass) {
      case ConvolutionPass::forward:  // (x, w) → y
        return pack(b.inputs[0], b.inputs[1], result, scratch);
      case ConvolutionPass::input:  // (dy, w) → dx
        return pack(result, b.inputs[1], b.inputs[0], scratch);
      case ConvolutionPass::weight:  // (dy, x) → dw
        return pack(b.inputs[1], result, b.inputs[0], scratch);
    }
    return nullptr;
  }

  void run(const Bindings& b, Stream& stream) const override {
    const auto* pack = static_cast<const VariantPack*>(b.prepared);
    void* result = b.outputs[0];
    const void* bias = options_.has_bias ? b.inputs[2] : nullptr;
    cudnnHandle_t handle = device_.dnn();
    check_cudnn(cudnnSetStream(handle, native_stream(stream)), "choosing a stream");
    check_cudnn(cudnnBackendExecute(handle, plan_->plan.get(), pack->descriptor.get()), name());
    if (is_copied()) {
      launch_cast(problem_.dtype, output_.dtype, temporary(b), result, output_.shape.elements(),
                  stream.native(), options_.accumulate);
    } else if (bias != nullptr || options_.activation != ElementwiseOp::identity) {
      launch_bias_activation(options_.activation, output_.dtype, bias, result,
                             output_.shape.elements() / output_.shape[-1], output_.shape[-1],
                             stream.native());
    }
  }

 private:
  static std::unique_ptr<VariantPack> pack(void* x, void* w, void* y, void* scratch) {
    return std::make_unique<VariantPack>(bind_convolution(x, w, y, scratch));
  }
  void* temporary(const Bindings& b) const {
    return is_copied() ? static_cast<std::byte*>(b.workspace) + plan_bytes_ : b.outputs[0];
  }
  bool is_copied() const { return options_.accumulate || output_.dtype != problem_.dtype; }
  const char* name() const {
    return problem_.pass == ConvolutionPass::forward ? "conv2d"
           : problem_.pass == ConvolutionPass::input ? "conv2d_backward_input"
                                                     : "conv2d_backward_weight";
  }

  CudaDevice& device_;
  ConvolutionProblem problem_;
  std::shared_ptr<const CudnnPlan> plan_;
  TensorSpec output_;
  Options options_;
  size_t plan_bytes_;
};

// Returns the choice by time, made now, in an earlier run or on another rank; the first proposal
// without a choice, or if this cuDNN does not propose it.
std::shared_ptr<CudnnPlan> choose_cudnn_conv2d(CudaDevice& device,
                                               const ConvolutionProblem& problem,
                                               const KernelRequest& request,
                                               const CudnnConvolution::Options& options,
                                               std::string& why) {
  const CudnnTarget target{.handle = device.dnn()};
  const CudnnProposals proposals = propose_convolution(problem, target);
  const auto shared = [](std::optional<CudnnPlan> plan) {
    return plan ? std::make_shared<CudnnPlan>(std::move(*plan)) : nullptr;
  };
  if (device.tuning().mode != Autotune::off && proposals.size() > 1) {
    const auto candidate = [&](size_t i) -> std::unique_ptr<Kernel> {
      auto plan = shared(proposals.build(i));
      if (plan == nullptr) return nullptr;
      return std::make_unique<CudnnConvolution>(device, problem, std::move(plan),
                                                request.outputs[0], options);
    };
    const std::string chosen =
        tuned_choice(device, key_of_convolution(problem), [&]() -> std::string {
          const std::optional<size_t> best =
              fastest_kernel(device, request.inputs, request.outputs, proposals.size(), candidate);
          return best ? proposals.name(*best) : std::string();
        });
    for (size_t i = 0; i < proposals.size(); ++i) {
      if (proposals.name(i) != chosen) continue;
      if (auto plan = shared(proposals.build(i))) return plan;
    }
  }
  return shared(proposals.build_first(&why));
}

std::unique_ptr<Kernel> make_cudnn_conv2d(const KernelRequest& request,
                                          const ConvolutionProblem& problem,
                                          const CudnnConvolution::Options& options) {
  const DType in = request.inputs[0].dtype, out = request.outputs[0].dtype;
  const bool narrow = is_low_precision(in) && (out == in || out == DType::f32);
  const bool ends = options.has_bias || options.activation != ElementwiseOp::identity;
  if (!(narrow || (in == DType::f32 && out == in)) || (ends && out != in) ||
      request.outputs[0].shape.elements() == 0) {
    return nullptr;
  }
  CudaDevice& device = cuda_device(request);
  if (problem.tf32 && device.architecture() < 80) return nullptr;
  std::string why;
  auto plan = device.plans().get<CudnnPlan>(
      fmt::format("{}, autotune {}", key_of_convolution(problem),
                  static_cast<int>(device.tuning().mode)),
      why, [&](std::string& reason) {
        return choose_cudnn_conv2d(device, problem, request, options, reason);
      });
  if (plan == nullptr) throw KernelRefused(ExitCode::device, why);
  return std::make_unique<CudnnConvolution>(device, problem, std::move(plan), request.outputs[0],
                                            options);
}

}  // namespace

std::unique_ptr<Kernel> make_cudnn_conv2d(const KernelRequest& r) {
  const std::string name = r.attributes.text("activation");
  const auto activation = elementwise_op(name.empty() ? "identity" : name);
  check_internal(activation.has_value(), "conv2d: activation {}", name);
  return make_cudnn_conv2d(
      r,
      read_convolution(r, ConvolutionPass::forward, r.inputs[0].shape, r.inputs[1].shape,
                       r.outputs[0].shape),
      {.has_bias = r.inputs.size() == 3 && !is_absent(r.inputs[2]), .activation = *activation});
}

std::unique_ptr<Kernel> make_cudnn_conv2d_input(const KernelRequest& r) {
  return make_cudnn_conv2d(r,
                           read_convolution(r, ConvolutionPass::input, r.outputs[0].shape,
                                            r.inputs[1].shape, r.inputs[0].shape),
                           {.accumulate = r.accumulate});
}

std::unique_ptr<Kernel> make_cudnn_conv2d_weight(const KernelRequest& r) {
  return make_cudnn_conv2d(r,
                           read_convolution(r, ConvolutionPass::weight, r.inputs[1].shape,
                                            r.outputs[0].shape, r.inputs[0].shape),
                           {.accumulate = r.accumulate});
}

}  // namespace dltrain

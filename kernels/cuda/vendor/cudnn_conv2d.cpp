// conv2d and its gradients by cuDNN. A separate kernel applies bias and activation in place; an
// accumulating gradient, or one that is wider than its operands, is written to the workspace first
// and then added or converted.
//
// The plan is the first that cuDNN proposes and that can be built, or with autotune the fastest of
// several.
#include <algorithm>

#include "base/error.h"
#include "cuda/elementwise.h"
#include "cuda/vendor/autotune.h"
#include "cuda/vendor/cudnn_plan.h"
#include "cuda/vendor/cudnn_problem.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/makers.h"
#include "ops/kernel_refused.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

// The workspace contains cuDNN's part and the temporary result.
constexpr size_t kCudnnConv2dAlignment = 256;

// Returns the index of the fastest proposal, timed with zeros as data.
std::optional<size_t> time_cudnn_conv2d(CudaDevice& device, const ConvolutionProblem& p,
                                        const CudnnProposals& proposals) {
  const auto buffer = [&](int64_t elements) {
    return Buffer(device, static_cast<size_t>(elements) * dtype_size(p.dtype));
  };
  const Buffer x = buffer(p.samples * p.in[0] * p.in[1] * p.in_channels),
               w = buffer(p.out_channels * p.kernel[0] * p.kernel[1] * p.in_channels / p.groups),
               y = buffer(p.samples * p.out[0] * p.out[1] * p.out_channels);
  // A candidate runs several times in a row and is made for the first run.
  size_t made = proposals.size();
  std::optional<CudnnPlan> plan;
  Buffer workspace;
  std::optional<CudnnDescriptor> pack;
  return fastest(device, std::min(proposals.size(), tuning_limits(device.tuning().mode).candidates),
                 [&](size_t i, Stream& stream) {
                   if (made != i) {
                     made = i;
                     plan = proposals.build(i);
                     if (!plan) return false;
                     workspace = Buffer(device, plan->workspace_bytes);
                     pack = bind_convolution(x.data(), w.data(), y.data(), workspace.data());
                   }
                   cudnnHandle_t handle = device.dnn();
                   check_cudnn(cudnnSetStream(handle, native_stream(stream)), "choosing a stream");
                   return cudnnBackendExecute(handle, plan->plan.get(), pack->get()) ==
                          CUDNN_STATUS_SUCCESS;
                 });
}

// Returns the choice by time, made now, in an earlier run or on rank 0; the first proposal without
// a choice, or if this cuDNN does not propose it. Throws KernelRefused if none can be built.
CudnnPlan choose_cudnn_conv2d(CudaDevice& device, const ConvolutionProblem& problem) {
  const CudnnTarget target{.handle = device.dnn()};
  const CudnnProposals proposals = propose_convolution(problem, target);
  if (device.tuning().mode != Autotune::off && proposals.size() > 1) {
    const std::string chosen = tuned_choice(device, describe(problem), [&]() -> std::string {
      const std::optional<size_t> best = time_cudnn_conv2d(device, problem, proposals);
      return best ? proposals.name(*best) : std::string();
    });
    for (size_t i = 0; i < proposals.size(); ++i) {
      if (proposals.name(i) != chosen) continue;
      if (auto plan = proposals.build(i)) return std::move(*plan);
    }
  }
  std::string why;
  auto plan = proposals.build_first(&why);
  if (!plan) throw KernelRefused(ExitCode::device, why);
  return std::move(*plan);
}

class CudnnConvolution final : public Kernel {
 public:
  struct Options {
    bool has_bias = false, accumulate = false;
    ElementwiseOp activation = ElementwiseOp::identity;
  };

  CudnnConvolution(CudaDevice& device, const ConvolutionProblem& problem, CudnnPlan plan,
                   const TensorSpec& output, const Options& options)
      : device_(device),
        problem_(problem),
        plan_(std::move(plan)),
        output_(output),
        options_(options),
        plan_bytes_((plan_.workspace_bytes + kCudnnConv2dAlignment - 1) / kCudnnConv2dAlignment *
                    kCudnnConv2dAlignment) {}

  size_t workspace_bytes() const override {
    return plan_bytes_ + (is_copied() ? TensorSpec{output_.shape, problem_.dtype}.bytes() : 0);
  }

  void bind(const Bindings& bindings) override {
    result_ = bindings.outputs[0];
    bias_ = options_.has_bias ? bindings.inputs[2] : nullptr;
    auto* workspace = static_cast<std::byte*>(bindings.workspace);
    temporary_ = is_copied() ? workspace + plan_bytes_ : result_;
    void* scratch = plan_.workspace_bytes > 0 ? workspace : nullptr;
    switch (problem_.pass) {
      case ConvolutionPass::forward:  // (x, w) → y
        pack_ = bind_convolution(bindings.inputs[0], bindings.inputs[1], temporary_, scratch);
        break;
      case ConvolutionPass::input:  // (dy, w) → dx
        pack_ = bind_convolution(temporary_, bindings.inputs[1], bindings.inputs[0], scratch);
        break;
      case ConvolutionPass::weight:  // (dy, x) → dw
        pack_ = bind_convolution(bindings.inputs[1], temporary_, bindings.inputs[0], scratch);
        break;
    }
  }

  void run(Stream& stream) override {
    cudnnHandle_t handle = device_.dnn();
    check_cudnn(cudnnSetStream(handle, native_stream(stream)), "choosing a stream");
    check_cudnn(cudnnBackendExecute(handle, plan_.plan.get(), pack_.get()), name());
    if (is_copied()) {
      launch_cast(problem_.dtype, output_.dtype, temporary_, result_, output_.shape.elements(),
                  stream.native(), options_.accumulate);
    } else if (bias_ != nullptr || options_.activation != ElementwiseOp::identity) {
      launch_bias_activation(options_.activation, output_.dtype, bias_, result_,
                             output_.shape.elements() / output_.shape[-1], output_.shape[-1],
                             stream.native());
    }
  }

 private:
  bool is_copied() const { return options_.accumulate || output_.dtype != problem_.dtype; }
  const char* name() const {
    return problem_.pass == ConvolutionPass::forward ? "conv2d"
           : problem_.pass == ConvolutionPass::input ? "conv2d_backward_input"
                                                     : "conv2d_backward_weight";
  }

  CudaDevice& device_;
  ConvolutionProblem problem_;
  CudnnPlan plan_;
  TensorSpec output_;
  Options options_;
  size_t plan_bytes_;
  CudnnDescriptor pack_{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR};
  void* result_ = nullptr;
  void* temporary_ = nullptr;
  const void* bias_ = nullptr;
};

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
  return std::make_unique<CudnnConvolution>(device, problem, choose_cudnn_conv2d(device, problem),
                                            request.outputs[0], options);
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

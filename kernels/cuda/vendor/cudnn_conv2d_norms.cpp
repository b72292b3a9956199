// conv2d_moments and conv2d_batch_norm in 16 bits by one cuDNN plan, if autotune finds one that is
// faster than the two steps (kernels/cuda/conv2d_norms.cpp); otherwise the makers return nullptr
// and the row of the two steps is used.
#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "cuda/batch_norm.h"
#include "cuda/makers.h"
#include "cuda/vendor/autotune.h"
#include "cuda/vendor/cudnn_plan.h"
#include "cuda/vendor/cudnn_problem.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/makers.h"
#include "device/tuning_choices.h"
#include "shared/workspace_parts.h"

namespace dltrain {
namespace {

using namespace cudnn_ids;

// A cuDNN plan with a small kernel before or after it that works on channel vectors.
class FusedConvolution : public Kernel {
 public:
  FusedConvolution(CudaDevice& device, const ConvolutionProblem& problem, CudnnPlan plan)
      : problem_(problem), device_(device), plan_(std::move(plan)) {
    parts_.add(plan_.workspace_bytes);  // at the start
    first_at_ = parts_.add(problem.out_channels, DType::f32);
    second_at_ = parts_.add(problem.out_channels, DType::f32);
  }

  size_t workspace_bytes() const override { return parts_.total(); }

 protected:
  // `others`: the bindings besides x, w and y.
  void bind_plan(const Bindings& b, std::vector<CudnnBinding> others) {
    others.insert(others.end(), {{kX, b.inputs[0]}, {kW, b.inputs[1]}, {kY, b.outputs[0]}});
    pack_ = bind_cudnn(others, plan_.workspace_bytes > 0 ? b.workspace : nullptr);
  }
  float* first(const Bindings& b) const { return part(b, first_at_); }
  float* second(const Bindings& b) const { return part(b, second_at_); }

  void execute(Stream& stream) {
    cudnnHandle_t handle = device_.dnn();
    check_cudnn(cudnnSetStream(handle, native_stream(stream)), "choosing a stream");
    check_cudnn(cudnnBackendExecute(handle, plan_.plan.get(), pack_.get()), "a fused convolution");
  }

  ConvolutionProblem problem_;

 private:
  static float* part(const Bindings& b, size_t at) {
    return reinterpret_cast<float*>(static_cast<std::byte*>(b.workspace) + at);
  }

  CudaDevice& device_;
  CudnnPlan plan_;
  WorkspaceParts parts_;
  size_t first_at_ = 0, second_at_ = 0;  // channel vectors in the workspace
  CudnnDescriptor pack_{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR};
};

// (x, w) → y, mean, variance, from the sums that the plan computes.
class FusedMoments final : public FusedConvolution {
 public:
  using FusedConvolution::FusedConvolution;

  void bind(const Bindings& b) override {
    sum_ = first(b);
    squares_ = second(b);
    mean_ = static_cast<float*>(b.outputs[1]);
    variance_ = static_cast<float*>(b.outputs[2]);
    bind_plan(b, {{kSum, sum_}, {kSquares, squares_}});
  }

  void run(Stream& stream) override {
    execute(stream);
    launch_moments_of_sums(problem_.samples * problem_.out[0] * problem_.out[1],
                           problem_.out_channels, sum_, squares_, mean_, variance_,
                           stream.native());
  }

 private:
  float *sum_ = nullptr, *squares_ = nullptr, *mean_ = nullptr, *variance_ = nullptr;
};

// (x, w, gamma, beta, mean, variance (, residual)) → y; the norm as scale and shift.
class FusedNorm final : public FusedConvolution {
 public:
  FusedNorm(CudaDevice& device, const ConvolutionProblem& problem, CudnnPlan plan, double epsilon)
      : FusedConvolution(device, problem, std::move(plan)), epsilon_(epsilon) {}

  void bind(const Bindings& b) override {
    for (size_t i = 0; i < 4; ++i) norm_[i] = static_cast<const float*>(b.inputs[2 + i]);
    scale_ = first(b);
    shift_ = second(b);
    std::vector<CudnnBinding> others{{kScale, scale_}, {kShift, shift_}};
    if (b.inputs.size() == 7) others.push_back({kResidual, b.inputs[6]});
    bind_plan(b, std::move(others));
  }

  void run(Stream& stream) override {
    launch_norm_as_line(epsilon_, problem_.out_channels, norm_[0], norm_[1], norm_[2], norm_[3],
                        scale_, shift_, stream.native());
    execute(stream);
  }

 private:
  double epsilon_;
  const float* norm_[4] = {};  // gamma, beta, mean, variance
  float *scale_ = nullptr, *shift_ = nullptr;
};

using MakeFused = std::function<std::unique_ptr<FusedConvolution>(CudnnPlan)>;
constexpr const char* kTwoSteps = "two steps";

std::unique_ptr<Kernel> choose_cudnn_conv2d_norms(const KernelRequest& request,
                                                  const std::string& key,
                                                  KernelMaker make_two_steps,
                                                  const CudnnProposals& proposals,
                                                  const MakeFused& make) {
  CudaDevice& device = cuda_device(request);
  if (proposals.size() == 0) return nullptr;
  // Made before the choice, since the convolution has its own tuned choice.
  auto two_steps = make_two_steps(request);
  const std::string chosen = tuned_choice(device, key, [&]() -> std::string {
    const auto candidate = [&](size_t i) -> std::unique_ptr<Kernel> {
      if (i == 0) return std::move(two_steps);
      auto plan = proposals.build(i - 1);
      return plan ? make(std::move(*plan)) : nullptr;
    };
    const auto best =
        fastest_kernel(device, request.inputs, request.outputs, proposals.size() + 1, candidate);
    return !best ? "" : *best == 0 ? kTwoSteps : proposals.name(*best - 1);
  });
  for (size_t i = 0; i < proposals.size(); ++i) {
    if (chosen != kOnePlan && proposals.name(i) != chosen) continue;
    if (auto plan = proposals.build(i)) return make(std::move(*plan));
  }
  return nullptr;
}

bool may_fuse(const KernelRequest& request) {
  return is_low_precision(request.inputs[0].dtype) && request.outputs[0].shape.elements() > 0 &&
         cuda_device(request).tuning().mode != Autotune::off;
}

ConvolutionProblem problem_of(const KernelRequest& r) {
  return read_convolution(r, ConvolutionPass::forward, r.inputs[0].shape, r.inputs[1].shape,
                          r.outputs[0].shape);
}

}  // namespace

std::unique_ptr<Kernel> make_cudnn_conv2d_moments(const KernelRequest& request) {
  if (!may_fuse(request)) return nullptr;
  CudaDevice& device = cuda_device(request);
  const ConvolutionProblem problem = problem_of(request);
  const CudnnTarget target{.handle = device.dnn()};
  return choose_cudnn_conv2d_norms(
      request, describe(problem) + ", with moments", make_cuda_conv2d_moments,
      propose_convolution_sums(problem, target), [&](CudnnPlan plan) {
        return std::make_unique<FusedMoments>(device, problem, std::move(plan));
      });
}

std::unique_ptr<Kernel> make_cudnn_conv2d_batch_norm(const KernelRequest& request) {
  if (!may_fuse(request)) return nullptr;
  CudaDevice& device = cuda_device(request);
  const ConvolutionProblem problem = problem_of(request);
  const NormEnding ending{.residual = request.inputs.size() == 7,
                          .relu = request.attributes.text("activation") == "relu"};
  const CudnnTarget target{.handle = device.dnn()};
  const double epsilon = request.attributes.number("epsilon", 1e-5);
  return choose_cudnn_conv2d_norms(
      request,
      fmt::format("{}, with a norm{}{}", describe(problem), ending.residual ? ", residual" : "",
                  ending.relu ? ", relu" : ""),
      make_cuda_conv2d_batch_norm, propose_convolution_norm(problem, ending, target),
      [&](CudnnPlan plan) {
        return std::make_unique<FusedNorm>(device, problem, std::move(plan), epsilon);
      });
}

}  // namespace dltrain

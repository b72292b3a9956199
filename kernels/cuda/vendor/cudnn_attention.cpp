// attention and its gradient by cuDNN: bf16 and f16, without dropout, masks or ALiBi. Other
// requests use the engine's own kernel. The plan is the first that cuDNN proposes and that can be
// built, or with autotune the fastest of several.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "cuda/vendor/autotune.h"
#include "cuda/vendor/cudnn_attention_plan.h"
#include "cuda/vendor/cudnn_descriptor.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/makers.h"
#include "ops/attention.h"
#include "ops/kernel_refused.h"

namespace dltrain {
namespace {

std::string key_of_cudnn_attention(const AttentionProblem& p) {
  return fmt::format(
      "attention {} {}, {} of {}x{} and {}x{}, head {}, strides {} and {}, causal {}, window {}",
      p.backward ? "backward" : "forward", dtype_name(p.dtype), p.samples, p.queries, p.heads,
      p.keys, p.kv_heads, p.head_dim, p.query_stride, p.key_stride, p.causal, p.window);
}

// Returns the index of the fastest proposal, timed with zeros as data.
std::optional<size_t> time_cudnn_attention(CudaDevice& device, const AttentionProblem& p,
                                           CudnnAttentionPlan& plan) {
  const size_t element = dtype_size(p.dtype);
  const auto buffer = [&](bool wanted, int64_t count, size_t bytes) {
    return Buffer(device, wanted ? static_cast<size_t>(count) * bytes : 0);
  };
  const int64_t q = p.samples * p.queries * p.query_stride, k = p.samples * p.keys * p.key_stride,
                y = p.samples * p.queries * p.heads * p.head_dim;
  const bool back = p.backward;
  const Buffer buffers[] = {buffer(true, q, element),
                            buffer(true, k, element),
                            buffer(true, k, element),
                            buffer(true, y, element),
                            buffer(back, y, element),
                            buffer(back, q, element),
                            buffer(back, k, element),
                            buffer(back, k, element),
                            buffer(true, p.samples * p.heads * p.queries, sizeof(float))};
  CudnnAttentionPlan::Data data{.q = buffers[0].data(),
                                .k = buffers[1].data(),
                                .v = buffers[2].data(),
                                .y = buffers[3].data(),
                                .sums = buffers[8].data(),
                                .dy = buffers[4].data(),
                                .dq = buffers[5].data(),
                                .dk = buffers[6].data(),
                                .dv = buffers[7].data()};
  const size_t count = plan.proposals().size();
  // A candidate runs several times in a row and is made for the first run.
  size_t made = count;
  Buffer workspace;
  return fastest(device, std::min(count, tuning_limits(device.tuning().mode).candidates),
                 [&](size_t i, Stream& stream) {
                   if (made != i) {
                     made = i;
                     if (!plan.select(i)) return false;
                     workspace = Buffer(device, plan.workspace_bytes());
                     plan.bind(data, workspace.data());
                   }
                   try {
                     cudnnHandle_t handle = device.dnn();
                     check_cudnn(cudnnSetStream(handle, native_stream(stream)),
                                 "choosing a stream");
                     plan.run(handle);
                   } catch (const Error&) {
                     return false;
                   }
                   return true;
                 });
}

// Selects the choice by time, made now, in an earlier run or on rank 0; without a choice, or if
// this cuDNN does not propose it, the first proposal that can be built. Returns false if none can.
bool choose_cudnn_attention(CudaDevice& device, const AttentionProblem& problem,
                            CudnnAttentionPlan& plan) {
  const std::vector<std::string>& names = plan.proposals();
  if (device.tuning().mode == Autotune::off || names.size() < 2) return true;
  const std::string chosen =
      tuned_choice(device, key_of_cudnn_attention(problem), [&]() -> std::string {
        const std::optional<size_t> best = time_cudnn_attention(device, problem, plan);
        return best ? names[*best] : std::string();
      });
  const auto at = std::find(names.begin(), names.end(), chosen);
  if (at != names.end() && plan.select(static_cast<size_t>(at - names.begin()))) return true;
  for (size_t i = 0; i < names.size(); ++i) {
    if (plan.select(i)) return true;
  }
  return false;
}

class CudnnAttention final : public Kernel {
 public:
  CudnnAttention(CudaDevice& device, const AttentionSizes& sizes, size_t element_bytes,
                 std::unique_ptr<CudnnAttentionPlan> plan, bool backward)
      : device_(device),
        sizes_(sizes),
        element_bytes_(static_cast<int64_t>(element_bytes)),
        plan_(std::move(plan)),
        backward_(backward) {}
  size_t workspace_bytes() const override { return plan_->workspace_bytes(); }

  void bind(const Bindings& b) override {
    CudnnAttentionPlan::Data d;
    const size_t first = backward_ ? 3 : 0;
    heads_of(b.inputs.subspan(first), d.q, d.k, d.v);
    if (backward_) {
      d.dy = b.inputs[0];
      d.y = b.inputs[1];
      d.sums = b.inputs[2];
      heads_of(b.outputs, d.dq, d.dk, d.dv);
    } else {
      d.y = b.outputs[0];
      d.sums = b.outputs[1];
    }
    plan_->bind(d, b.workspace);
  }
  void run(Stream& stream) override {
    cudnnHandle_t handle = device_.dnn();
    check_cudnn(cudnnSetStream(handle, native_stream(stream)), "choosing a stream");
    plan_->run(handle);
  }

 private:
  // Sets the addresses of queries, keys and values, in three tensors or in one.
  void heads_of(std::span<void* const> tensors, void*& q, void*& k, void*& v) const {
    q = tensors[0];
    if (!sizes_.packed) {
      k = tensors[1];
      v = tensors[2];
      return;
    }
    k = static_cast<std::byte*>(q) + sizes_.key(0, 0, 0) * element_bytes_;
    v = static_cast<std::byte*>(q) + sizes_.value(0, 0, 0) * element_bytes_;
  }

  CudaDevice& device_;
  AttentionSizes sizes_;
  int64_t element_bytes_;
  std::unique_ptr<CudnnAttentionPlan> plan_;
  bool backward_;
};

std::unique_ptr<Kernel> make_cudnn_attention(const KernelRequest& request, SpecSpan inputs,
                                             bool backward) {
  const Attributes& attributes = request.attributes;
  const DType dtype = inputs[0].dtype;
  const AttentionSizes a = attention_sizes(request.op, inputs, attributes);
  const AttentionPattern pattern(attributes);
  if (!is_low_precision(dtype) || a.head_dim % 8 != 0 || a.head_dim > 256 || pattern.masked ||
      pattern.alibi || attributes.number("dropout") > 0 ||
      (pattern.window > 0 && !pattern.causal)) {
    return nullptr;
  }
  CudaDevice& device = cuda_device(request);
  const AttentionProblem problem{
      .dtype = dtype,
      .samples = a.samples,
      .queries = a.queries,
      .keys = a.keys,
      .heads = a.heads,
      .kv_heads = a.kv_heads,
      .head_dim = a.head_dim,
      .query_stride = a.query_stride,
      .key_stride = a.key_stride,
      .scale = attributes.number("scale", 1 / std::sqrt(static_cast<double>(a.head_dim))),
      .causal = pattern.causal,
      .window = pattern.window,
      .backward = backward};
  std::string why = "none of its plans can be built";
  auto plan = plan_attention(problem, {.handle = device.dnn()}, &why);
  if (plan == nullptr || !choose_cudnn_attention(device, problem, *plan)) {
    throw KernelRefused(ExitCode::device, "cuDNN: " + why);
  }
  return std::make_unique<CudnnAttention>(device, a, dtype_size(dtype), std::move(plan), backward);
}

}  // namespace

std::unique_ptr<Kernel> make_cudnn_attention(const KernelRequest& request) {
  return make_cudnn_attention(request, request.inputs, false);
}
std::unique_ptr<Kernel> make_cudnn_attention_backward(const KernelRequest& request) {
  return make_cudnn_attention(request, request.inputs.subspan(3), true);
}

}  // namespace dltrain

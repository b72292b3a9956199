// attention and its gradient by cuDNN: bf16 and f16, without dropout, masks or ALiBi. What it does
// not serve is left to our own kernel.
#include <cmath>

#include "cuda/vendor/cudnn_attention_plan.h"
#include "cuda/vendor/cudnn_plan.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/makers.h"
#include "ops/attention.h"

namespace dltrain {
namespace {

constexpr size_t kMostWorkspace = size_t{4} << 30;

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
  // Where queries, keys and values begin: in three tensors or in one.
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

std::unique_ptr<Kernel> make(const KernelRequest& request, SpecSpan inputs, bool backward) {
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
  auto plan = plan_attention(
      {.dtype = dtype,
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
       .backward = backward},
      {.handle = device.dnn()});
  if (plan == nullptr || plan->workspace_bytes() > kMostWorkspace) return nullptr;
  return std::make_unique<CudnnAttention>(device, a, dtype_size(dtype), std::move(plan), backward);
}

}  // namespace

std::unique_ptr<Kernel> make_cudnn_attention(const KernelRequest& request) {
  return make(request, request.inputs, false);
}
std::unique_ptr<Kernel> make_cudnn_attention_backward(const KernelRequest& request) {
  return make(request, request.inputs.subspan(3), true);
}

}  // namespace dltrain

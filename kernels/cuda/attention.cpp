// Kernel classes of attention and its gradient.
#include "cuda/attention.h"

#include "cuda/attention_call.h"
#include "cuda/makers.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

// `inputs` begin with the queries.
AttentionCall read_attention_call(const KernelRequest& request, SpecSpan inputs) {
  const Attributes& attributes = request.attributes;
  const AttentionSizes a = attention_sizes(request.op, inputs, attributes);
  AttentionCall call = attention_call(a, inputs[0].dtype, attributes);
  if (AttentionPattern(attributes).masked) {
    call.mask = inputs[a.packed ? 1 : 3].shape.rank() == 1 ? AttentionCall::Mask::lengths
                                                           : AttentionCall::Mask::tokens;
  }
  return call;
}

bool served_attention(const AttentionCall& call) {
  return call.head_dim <= AttentionCall::kMostHeadDim &&
         call.samples * call.heads * call.queries < (int64_t{1} << 31) &&
         call.samples * call.kv_heads * call.keys < (int64_t{1} << 31);
}

bool is_packed(const AttentionCall& call) {
  return call.first_key_head > 0;
}

AttentionInputs read_inputs(const AttentionCall& call, std::span<void* const> inputs) {
  const bool packed = is_packed(call);
  AttentionInputs in{.q = inputs[0], .k = inputs[packed ? 0 : 1], .v = inputs[packed ? 0 : 2]};
  if (call.mask != AttentionCall::Mask::none) {
    in.mask = static_cast<const int32_t*>(inputs[packed ? 1 : 3]);
  }
  if (call.dropout > 0) in.state = static_cast<const StepState*>(inputs.back());
  return in;
}

class Attention final : public Kernel {
 public:
  explicit Attention(const AttentionCall& call) : call_(call) {}
  void bind(const Bindings& b) override {
    in_ = read_inputs(call_, b.inputs);
    y_ = b.outputs[0];
    sums_ = b.outputs[1];
  }
  void run(Stream& stream) override { launch_attention(call_, in_, y_, sums_, stream.native()); }

 private:
  AttentionCall call_;
  AttentionInputs in_;
  void *y_ = nullptr, *sums_ = nullptr;
};

class AttentionBackward final : public Kernel {
 public:
  explicit AttentionBackward(const AttentionCall& call) : call_(call) {}
  size_t workspace_bytes() const override {
    return static_cast<size_t>(call_.samples * call_.heads * call_.queries) *
           dtype_size(accumulation_dtype(call_.dtype));
  }
  void bind(const Bindings& b) override {
    dy_ = b.inputs[0];
    y_ = b.inputs[1];
    sums_ = b.inputs[2];
    in_ = read_inputs(call_, b.inputs.subspan(3));
    const bool packed = is_packed(call_);
    dq_ = b.outputs[0];
    dk_ = b.outputs[packed ? 0 : 1];
    dv_ = b.outputs[packed ? 0 : 2];
    deltas_ = b.workspace;
  }
  void run(Stream& stream) override {
    launch_attention_backward(call_, in_, dy_, y_, sums_, deltas_, dq_, dk_, dv_, stream.native());
  }

 private:
  AttentionCall call_;
  AttentionInputs in_;
  const void *dy_ = nullptr, *y_ = nullptr, *sums_ = nullptr;
  void *deltas_ = nullptr, *dq_ = nullptr, *dk_ = nullptr, *dv_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_attention(const KernelRequest& request) {
  const AttentionCall call = read_attention_call(request, request.inputs);
  return served_attention(call) ? std::make_unique<Attention>(call) : nullptr;
}

std::unique_ptr<Kernel> make_cuda_attention_backward(const KernelRequest& request) {
  const AttentionCall call = read_attention_call(request, request.inputs.subspan(3));
  return served_attention(call) ? std::make_unique<AttentionBackward>(call) : nullptr;
}

}  // namespace dltrain

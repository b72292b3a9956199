// attention and its gradient by cuDNN: bf16 and f16, without ALiBi, and without a window that is
// not causal or has a mask. Other requests use the engine's own kernel. Equal layers share a plan:
// the first that cuDNN proposes and that can be built, or with autotune the fastest of several.
// Built plans are stored (vendor/code_cache.h), since cuDNN compiles their code.
//
// With dropout cuDNN draws from a seed that depends on the run's seed, layer, step and micro-batch,
// so that a repeated, resumed or recomputed step draws the same; the kernels of other engines draw
// otherwise (docs/equality.md). Therefore forward and backward are both cuDNN's or neither.
#include <fmt/format.h>

#include "cuda/attention_inputs.h"
#include "cuda/makers.h"
#include "cuda/vendor/autotune.h"
#include "cuda/vendor/code_cache.h"
#include "cuda/vendor/cudnn_attention_plan.h"
#include "cuda/vendor/cudnn_descriptor.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/requests.h"
#include "ops/kernel_refused.h"
#include "shared/workspace_parts.h"

namespace dltrain {
namespace {

using Plan = CudnnAttentionPlan;

class CudnnAttention final : public Kernel {
 public:
  // `other`: with dropout the plan of the other direction, kept for the kernel that needs it.
  CudnnAttention(CudaDevice& device, const AttentionCall& call, bool backward,
                 std::shared_ptr<Plan> plan, std::shared_ptr<Plan> other = nullptr)
      : device_(device),
        call_(call),
        backward_(backward),
        plan_(std::move(plan)),
        other_(std::move(other)),
        bias_(bias_of(call, backward)) {
    parts_.add(plan_->workspace_bytes());  // at the start
    if (masked()) bias_at_ = parts_.add(call.samples * bias_.rows * bias_.stride, call.dtype);
    if (call.dropout > 0) random_at_ = parts_.add(3 * sizeof(uint64_t));
  }
  size_t workspace_bytes() const override { return parts_.total(); }

  // cuDNN's table of the addresses.
  struct Prepared final : PreparedBindings {
    std::unique_ptr<Plan::Addresses> addresses = std::make_unique<Plan::Addresses>();
  };
  std::unique_ptr<PreparedBindings> prepare(const Bindings& b) const override {
    auto* workspace = static_cast<std::byte*>(b.workspace);
    const AttentionInputs in = inputs(b);
    auto out = std::make_unique<Prepared>();
    Plan::Addresses& addresses = *out->addresses;
    addresses = {{Plan::kQ, at(in.q, 0)},
                 {Plan::kK, key(in.k)},
                 {Plan::kV, value(in.v)},
                 {Plan::kY, backward_ ? b.inputs[1] : b.outputs[0]},
                 {Plan::kSums, backward_ ? b.inputs[2] : b.outputs[1]}};
    if (backward_) {
      const size_t last = b.outputs.size() - 1;  // 0: packed
      addresses.insert({{Plan::kDy, b.inputs[0]},
                        {Plan::kDq, b.outputs[0]},
                        {Plan::kDk, key(b.outputs[last / 2])},
                        {Plan::kDv, value(b.outputs[last])}});
    }
    if (masked()) addresses[Plan::kBias] = workspace + bias_at_;
    if (call_.dropout > 0) {
      addresses[Plan::kSeed] = workspace + random_at_;
      addresses[Plan::kOffset] = workspace + random_at_ + 2 * sizeof(uint64_t);
    }
    return out;
  }

  void run(const Bindings& b, Stream& stream) const override {
    auto* workspace = static_cast<std::byte*>(b.workspace);
    if (masked() || call_.dropout > 0) {
      launch_attention_inputs(call_, inputs(b), bias_, workspace + bias_at_,
                              reinterpret_cast<uint64_t*>(workspace + random_at_), stream.native());
    }
    cudnnHandle_t handle = device_.dnn();
    check_cudnn(cudnnSetStream(handle, native_stream(stream)), "choosing a stream");
    plan_->run(handle, *static_cast<const Prepared*>(b.prepared)->addresses, workspace);
    if (masked() && !backward_ && call_.mask != AttentionCall::Mask::documents) {
      launch_queries_without_keys(call_, inputs(b), b.outputs[0], b.output<float>(1),
                                  stream.native());
    }
  }

 private:
  AttentionInputs inputs(const Bindings& b) const {
    return read_attention_inputs(call_, b.inputs.subspan(backward_ ? 3 : 0));
  }
  bool masked() const { return call_.mask != AttentionCall::Mask::none; }
  // The address of an element; cuDNN takes inputs as void* too.
  void* at(const void* tensor, int64_t element) const {
    const auto bytes = element * static_cast<int64_t>(dtype_size(call_.dtype));
    return const_cast<std::byte*>(static_cast<const std::byte*>(tensor)) + bytes;
  }
  void* key(const void* tensor) const { return at(tensor, call_.key(0, 0, 0)); }
  void* value(const void* tensor) const { return at(tensor, call_.value(0, 0, 0)); }

  CudaDevice& device_;
  AttentionCall call_;
  bool backward_;
  std::shared_ptr<Plan> plan_, other_;
  AttentionBias bias_;
  WorkspaceParts parts_;
  size_t bias_at_ = 0, random_at_ = 0;
};

// The tensors of the forward or the backward.
struct Direction {
  bool backward;
  SpecList inputs, outputs;
};

Direction opposite(const Direction& d, const AttentionCall& call) {
  if (d.backward) {
    return {false, {d.inputs.begin() + 3, d.inputs.end()}, {d.inputs[1], d.inputs[2]}};
  }
  Direction out{true, {d.outputs[0], d.outputs[0], d.outputs[1]}, {}};
  out.inputs.insert(out.inputs.end(), d.inputs.begin(), d.inputs.end());
  out.outputs.assign(d.inputs.begin(), d.inputs.begin() + (call.packed ? 1 : 3));
  return out;
}

// Restores the plan that an earlier process built for such a device, or builds it: the choice by
// time, made now, earlier or on another rank; without one the first proposal that can be built.
std::shared_ptr<Plan> make_plan(CudaDevice& device, const AttentionCall& call, const Direction& d,
                                const std::string& key, std::string& why) {
  const AttentionTarget target{.handle = device.dnn()};
  std::shared_ptr<Plan> built;
  std::string chosen;
  if (device.tuning().mode != Autotune::off) {
    chosen = tuned_choice(device, key, [&]() -> std::string {
      built = plan_attention(call, d.backward, target, &why);
      if (built == nullptr || built->proposals().size() < 2) return {};
      const auto candidate = [&](size_t i) -> std::unique_ptr<Kernel> {
        if (!built->select(i)) return nullptr;
        return std::make_unique<CudnnAttention>(device, call, d.backward, built);
      };
      const std::optional<size_t> best =
          fastest_kernel(device, d.inputs, d.outputs, built->proposals().size(), candidate);
      return best ? built->proposals()[*best] : std::string();
    });
  }
  bool ready = false;
  const auto build = [&] {
    const bool is_new = built == nullptr;  // with its first proposal
    if (is_new) built = plan_attention(call, d.backward, target, &why);
    ready = built != nullptr && ((is_new && chosen.empty()) || built->select(chosen));
    return ready ? built->stored() : std::string();
  };
  const DeviceProperties& gpu = device.properties();
  const std::string stored =
      cached_code(cache_folder(),
                  fmt::format("plan {}\n{} {} {}\n{}\n{}\n{}", Plan::format(), gpu.name,
                              gpu.architecture, gpu.processors, gpu.libraries, key, chosen),
                  build);
  if (!ready && !stored.empty()) {
    if (auto plan = restore_attention(stored, target)) return plan;
    build();
  }
  return ready ? built : nullptr;
}

// The plan of this direction, shared with equal layers.
std::shared_ptr<Plan> shared_plan(CudaDevice& device, const AttentionCall& c, const Direction& d,
                                  std::string& why) {
  const bool masked = c.mask != AttentionCall::Mask::none;
  const AttentionBias bias = bias_of(c, d.backward);
  const std::string key = fmt::format(
      "attention {} {}, {} of {}x{} and {}x{}, head {}, strides {} and {}, scale {}, causal {}, "
      "window {}, bias {}x{}, dropout {}",
      d.backward ? "backward" : "forward", dtype_name(c.dtype), c.samples, c.queries, c.heads,
      c.keys, c.kv_heads, c.head_dim, c.query_stride, c.key_stride, c.scale,
      c.pattern.causal && c.first_query > 0 ? "to the last key"
      : c.pattern.causal                    ? "true"
                                            : "false",
      c.pattern.window, masked ? bias.rows : 0, bias.stride, c.dropout);
  return device.plans().get<Plan>(
      fmt::format("{}, autotune {}", key, static_cast<int>(device.tuning().mode)), why,
      [&](std::string& reason) { return make_plan(device, c, d, key, reason); });
}

std::unique_ptr<Kernel> make_cudnn_attention(const KernelRequest& request, bool backward) {
  const AttentionCall c = read_attention_call(request, request.inputs.subspan(backward ? 3 : 0));
  const bool masked = c.mask != AttentionCall::Mask::none;
  if (!is_low_precision(c.dtype) || c.head_dim % 8 != 0 || c.head_dim > 256 || c.pattern.alibi ||
      (c.pattern.window > 0 && (!c.pattern.causal || masked))) {
    return nullptr;
  }
  // With a part of a text cuDNN knows no positions in the whole: causal queries must end with the
  // last key, and windows, dropout and masks of some keys are excluded.
  const bool is_part = c.queries < c.all_queries || c.keys < c.all_keys;
  const bool ends = c.first_query + c.queries == c.keys && !masked;
  const bool some_keys = masked && c.keys < c.all_keys;
  if (is_part &&
      (c.pattern.window > 0 || c.dropout > 0 || some_keys || (c.pattern.causal && !ends))) {
    return nullptr;
  }
  CudaDevice& device = cuda_device(request);
  const Direction own{backward,
                      {request.inputs.begin(), request.inputs.end()},
                      {request.outputs.begin(), request.outputs.end()}};
  std::string why;
  std::shared_ptr<Plan> plan = shared_plan(device, c, own, why), other;
  if (plan != nullptr && c.dropout > 0) other = shared_plan(device, c, opposite(own, c), why);
  if (plan == nullptr || (c.dropout > 0 && other == nullptr)) {
    throw KernelRefused(ExitCode::device, "cuDNN: " + why);
  }
  return std::make_unique<CudnnAttention>(device, c, backward, std::move(plan), std::move(other));
}

}  // namespace

std::unique_ptr<Kernel> make_cudnn_attention(const KernelRequest& request) {
  return make_cudnn_attention(request, false);
}
std::unique_ptr<Kernel> make_cudnn_attention_backward(const KernelRequest& request) {
  return make_cudnn_attention(request, true);
}

}  // namespace dltrain

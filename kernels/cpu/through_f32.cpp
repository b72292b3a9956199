// Any op on bf16 or f16 tensors by the kernel for f32: inputs are widened into the workspace, the
// f32 kernel runs, and results are rounded. A path of compatibility for ops and formats without a
// kernel of their own (oneDNN has no f16 on the CPU): correct, at the price of the conversions.
#include <algorithm>

#include "cpu/convert.h"
#include "cpu/engine.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/op.h"

namespace dltrain {
namespace {

class ThroughF32 final : public Kernel {
 public:
  ThroughF32(const KernelRequest& request, std::unique_ptr<Kernel> inner)
      : inner_(std::move(inner)) {
    place(inner_->workspace_bytes());  // at the start
    add(request.inputs, inputs_);
    add(request.outputs, outputs_);
  }

  size_t workspace_bytes() const override { return bytes_; }

  void bind(const Bindings& bindings) override {
    auto* workspace = static_cast<std::byte*>(bindings.workspace);
    const auto bind_list = [&](std::vector<Operand>& list, std::span<void* const> addresses) {
      std::vector<void*> out(addresses.begin(), addresses.end());
      for (Operand& o : list) {
        o.low = addresses[o.index];
        o.wide = reinterpret_cast<float*>(workspace + o.offset);
        if (o.low != nullptr) out[o.index] = o.wide;
      }
      return out;
    };
    const auto in = bind_list(inputs_, bindings.inputs),
               out = bind_list(outputs_, bindings.outputs);
    inner_->bind({.inputs = in, .outputs = out, .workspace = workspace});
  }

  void run(Stream& stream) override {
    for (const Operand& o : inputs_) {
      const auto widen = widen_function(o.dtype);
      const auto* from = static_cast<const uint16_t*>(o.low);
      parallel_for(o.count, kGrain, [&](int64_t begin, int64_t end) {
        widen(from + begin, o.wide + begin, end - begin);
      });
    }
    inner_->run(stream);
    for (const Operand& o : outputs_) {
      const auto narrow = narrow_function(o.dtype);
      auto* to = static_cast<uint16_t*>(o.low);
      parallel_for(o.count, kGrain, [&](int64_t begin, int64_t end) {
        narrow(o.wide + begin, to + begin, end - begin);
      });
    }
  }

 private:
  static constexpr int64_t kGrain = 8192;

  struct Operand {
    size_t index;  // among the inputs or outputs
    DType dtype;
    int64_t count;
    size_t offset;  // of its f32 form in the workspace
    void* low = nullptr;
    float* wide = nullptr;
  };

  size_t place(size_t bytes) {
    const size_t at = bytes_;
    bytes_ += (bytes + 255) / 256 * 256;
    return at;
  }
  void add(SpecSpan specs, std::vector<Operand>& list) {
    for (size_t i = 0; i < specs.size(); ++i) {
      if (!is_low_precision(specs[i].dtype)) continue;
      const int64_t count = specs[i].shape.elements();
      list.push_back({i, specs[i].dtype, count, place(static_cast<size_t>(count) * sizeof(float))});
    }
  }

  std::unique_ptr<Kernel> inner_;
  size_t bytes_ = 0;
  std::vector<Operand> inputs_, outputs_;
};

// The same tensors with f32 in place of bf16 and f16.
SpecList widened(SpecSpan specs, bool& any) {
  SpecList out(specs.begin(), specs.end());
  for (TensorSpec& spec : out) {
    if (!is_low_precision(spec.dtype)) continue;
    spec.dtype = DType::f32;
    any = true;
  }
  return out;
}

}  // namespace

MadeKernel make_through_f32(const KernelRequest& request) {
  bool low_inputs = false, low_outputs = false;
  const SpecList inputs = widened(request.inputs, low_inputs);
  const SpecList outputs = widened(request.outputs, low_outputs);
  if (!low_inputs || (low_outputs && request.accumulate)) return nullptr;
  KernelRequest wide = request;
  wide.inputs = inputs;
  wide.outputs = outputs;
  FoundKernel found = find_kernel(cpu_engine(), wide);
  if (!found.kernel) return nullptr;
  return std::make_unique<ThroughF32>(request, std::move(found.kernel));
}

}  // namespace dltrain

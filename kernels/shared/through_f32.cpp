#include "shared/through_f32.h"

#include <algorithm>

#include "ops/op.h"
#include "shared/workspace_parts.h"

namespace dltrain {
namespace {

class ThroughF32 final : public Kernel {
 public:
  ThroughF32(const KernelRequest& request, std::unique_ptr<Kernel> inner, ConvertFunction convert)
      : inner_(std::move(inner)), convert_(convert) {
    workspace_.add(inner_->workspace_bytes());  // at the start
    add(request.inputs, inputs_);
    add(request.outputs, outputs_);
  }

  size_t workspace_bytes() const override { return workspace_.total(); }

  void bind(const Bindings& bindings) override {
    auto* workspace = static_cast<std::byte*>(bindings.workspace);
    const auto bind_list = [&](std::vector<Operand>& list, std::span<void* const> addresses) {
      std::vector<void*> out(addresses.begin(), addresses.end());
      for (Operand& o : list) {
        o.low = addresses[o.index];
        o.wide = workspace + o.offset;
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
      if (o.low != nullptr) convert_(o.dtype, DType::f32, o.low, o.wide, o.count, stream);
    }
    inner_->run(stream);
    for (const Operand& o : outputs_) {
      if (o.low != nullptr) convert_(DType::f32, o.dtype, o.wide, o.low, o.count, stream);
    }
  }

 private:
  struct Operand {
    size_t index;  // among the inputs or outputs
    DType dtype;
    int64_t count;
    size_t offset;  // of its f32 form in the workspace
    void* low = nullptr;
    void* wide = nullptr;
  };

  void add(SpecSpan specs, std::vector<Operand>& list) {
    for (size_t i = 0; i < specs.size(); ++i) {
      if (!is_low_precision(specs[i].dtype)) continue;
      const int64_t count = specs[i].shape.elements();
      list.push_back({i, specs[i].dtype, count, workspace_.add(count, DType::f32)});
    }
  }

  std::unique_ptr<Kernel> inner_;
  ConvertFunction convert_;
  WorkspaceParts workspace_;
  std::vector<Operand> inputs_, outputs_;
};

// Replaces bf16 and f16 by f32; sets `any` if there was one.
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

std::unique_ptr<Kernel> make_through_f32(const KernelRequest& request, const Engine& engine,
                                         ConvertFunction convert) {
  bool low_inputs = false, low_outputs = false;
  const SpecList inputs = widened(request.inputs, low_inputs);
  const SpecList outputs = widened(request.outputs, low_outputs);
  if (!low_inputs || (low_outputs && request.accumulate)) return nullptr;
  KernelRequest wide = request;
  wide.inputs = inputs;
  wide.outputs = outputs;
  FoundKernel found = find_kernel(engine, wide);
  if (!found.kernel) return nullptr;
  return std::make_unique<ThroughF32>(request, std::move(found.kernel), convert);
}

std::vector<KernelRow> with_through_f32(std::span<const KernelRow> rows, KernelMaker through_f32,
                                        bool proven) {
  std::vector<KernelRow> out(rows.begin(), rows.end());
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool known = std::any_of(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const KernelRow& other) { return other.op == rows[i].op; });
    if (known) continue;
    out.push_back({.op = rows[i].op,
                   .variant = "through f32",
                   .make = through_f32,
                   .accumulates = true,
                   .proven = proven});
  }
  return out;
}

}  // namespace dltrain

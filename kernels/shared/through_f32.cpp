#include "shared/through_f32.h"

#include <algorithm>

#include "ops/op.h"
#include "shared/make_kernel.h"
#include "shared/workspace_parts.h"

namespace dltrain {
namespace {

// A 16-bit tensor of the op and the place of its f32 form in the workspace.
struct LowOperand {
  size_t index;  // among the inputs or outputs
  DType dtype;
  int64_t count;
  size_t offset;
};

struct Conversion {
  DType dtype;
  int64_t count;
  void *low, *wide;
};

// The addresses of one call.
struct WideCall {
  std::vector<Conversion> inputs, outputs;
  BoundCall inner;
};

std::vector<LowOperand> low_operands(SpecSpan specs, WorkspaceParts& workspace) {
  std::vector<LowOperand> out;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!is_low_precision(specs[i].dtype)) continue;
    const int64_t count = specs[i].shape.elements();
    out.push_back({i, specs[i].dtype, count, workspace.add(count, DType::f32)});
  }
  return out;
}

// Replaces the 16-bit tensors among the addresses; absent ones stay absent.
std::vector<void*> wide_addresses(const std::vector<LowOperand>& operands,
                                  std::span<void* const> addresses, std::byte* workspace,
                                  std::vector<Conversion>& conversions) {
  std::vector<void*> out(addresses.begin(), addresses.end());
  for (const LowOperand& o : operands) {
    if (addresses[o.index] == nullptr) continue;
    out[o.index] = workspace + o.offset;
    conversions.push_back({o.dtype, o.count, addresses[o.index], out[o.index]});
  }
  return out;
}

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
  WorkspaceParts workspace;
  workspace.add(found.kernel->workspace_bytes());  // at the start
  const auto low_in = low_operands(request.inputs, workspace),
             low_out = low_operands(request.outputs, workspace);
  const auto prepare = [inner = std::shared_ptr<const Kernel>(std::move(found.kernel)), low_in,
                        low_out](const Bindings& b) {
    auto* memory = static_cast<std::byte*>(b.workspace);
    WideCall call;
    const auto in = wide_addresses(low_in, b.inputs, memory, call.inputs),
               out = wide_addresses(low_out, b.outputs, memory, call.outputs);
    call.inner = BoundCall(*inner, in, out, memory);
    return call;
  };
  const auto run = [convert](const WideCall& call, const Bindings&, Stream& stream) {
    for (const Conversion& c : call.inputs) {
      convert(c.dtype, DType::f32, c.low, c.wide, c.count, stream);
    }
    call.inner.run(stream);
    for (const Conversion& c : call.outputs) {
      convert(DType::f32, c.dtype, c.wide, c.low, c.count, stream);
    }
  };
  return make_prepared_kernel(prepare, run, workspace.total());
}

std::vector<KernelRow> with_through_f32(std::span<const KernelRow> rows, KernelMaker through_f32,
                                        bool proven) {
  std::vector<KernelRow> out(rows.begin(), rows.end());
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool known = std::ranges::any_of(
        rows.first(i), [&](const KernelRow& other) { return other.op == rows[i].op; });
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

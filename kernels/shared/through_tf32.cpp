#include "shared/through_tf32.h"

#include <array>

#include "ops/rules.h"
#include "shared/make_kernel.h"
#include "shared/workspace_parts.h"

namespace dltrain {

std::unique_ptr<Kernel> make_through_tf32(const KernelRequest& request, const Engine& engine,
                                          RoundFunction round) {
  if (!rounds_to_tf32(request.attributes) || request.inputs[0].dtype != DType::f32 ||
      request.inputs[1].dtype != DType::f32) {
    return nullptr;
  }
  Attributes plain = request.attributes;
  plain.erase("math");
  const KernelRequest inner{.op = request.op,
                            .attributes = plain,
                            .inputs = request.inputs,
                            .outputs = request.outputs,
                            .accumulate = request.accumulate,
                            .device = request.device,
                            .subject = request.subject};
  FoundKernel found = find_kernel(engine, inner);
  if (!found.kernel) return nullptr;
  WorkspaceParts workspace;
  workspace.add(found.kernel->workspace_bytes());  // at the start
  std::array<int64_t, 2> counts{};
  std::array<size_t, 2> places{};
  for (size_t i = 0; i < 2; ++i) {
    counts[i] = request.inputs[i].shape.elements();
    places[i] = workspace.add(counts[i], DType::f32);
  }
  const auto prepare = [kernel = std::shared_ptr<const Kernel>(std::move(found.kernel)),
                        places](const Bindings& b) {
    std::vector<void*> inputs(b.inputs.begin(), b.inputs.end());
    for (size_t i = 0; i < 2; ++i) inputs[i] = static_cast<std::byte*>(b.workspace) + places[i];
    return BoundCall(*kernel, inputs, b.outputs, b.workspace);
  };
  const auto run = [round, counts, places](const BoundCall& call, const Bindings& b,
                                           Stream& stream) {
    for (size_t i = 0; i < 2; ++i) {
      auto* rounded = static_cast<std::byte*>(b.workspace) + places[i];
      round(b.input<float>(i), reinterpret_cast<float*>(rounded), counts[i], stream);
    }
    call.run(stream);
  };
  return make_prepared_kernel(prepare, run, workspace.total());
}

}  // namespace dltrain

#include "ops/kernel.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/engine.h"

namespace dltrain {

FoundKernel find_kernel(const Engine& engine, const KernelRequest& request) {
  for (size_t i = 0; i < engine.kernel_count; ++i) {
    const KernelRow& row = engine.kernels[i];
    if (row.op != request.op || (request.accumulate && !row.accumulates)) continue;
    if (auto kernel = row.make(request)) return {std::move(kernel), &row};
  }
  if (request.accumulate) return {};
  std::string inputs;
  for (const TensorSpec& spec : request.inputs) {
    inputs += (inputs.empty() ? "" : ", ") + to_string(spec);
  }
  fail(ExitCode::usage, "the {} engine has no kernel for {}({}) with {}", engine.name, request.op,
       inputs, request.attributes.empty() ? "no attributes" : to_string(request.attributes));
}

}  // namespace dltrain

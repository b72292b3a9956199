#include "cuda/fused_source.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace dltrain {
namespace {

const char* storage_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "double";
    case DType::bf16:
      return "dltrain::DeviceBf16";
    case DType::f16:
      return "dltrain::DeviceF16";
    default:
      return "float";
  }
}

}  // namespace

int64_t fused_pack(const FusedTypes& types) {
  size_t narrowest = dtype_size(types.result);
  for (DType dtype : types.inputs) narrowest = std::min(narrowest, dtype_size(dtype));
  return 16 / static_cast<int64_t>(narrowest);
}

std::string fused_source(const std::vector<FusedStep>& steps, const FusedTypes& types,
                         const std::string& name) {
  const size_t inputs = types.inputs.size();
  std::string loads, body;
  for (size_t i = 0; i < inputs; ++i) {
    check_internal(is_floating(types.inputs[i]), "a program of {}", dtype_name(types.inputs[i]));
    loads += fmt::format("    dltrain::load_elements<{1}, N>(operands.input[{0}], at, in[{0}]);\n",
                         i, storage_of(types.inputs[i]));
    body += fmt::format("    const M v{0} = in[{0}];\n", i);
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const FusedStep& step = steps[i];
    body += fmt::format(
        "    const M v{} = dltrain::elementwise<dltrain::ElementwiseOp::{}, M>(v{}, v{}, "
        "M({:.17g}), M({:.17g}));\n",
        inputs + i, step.op, step.operands.front(), step.operands.back(), step.p, step.q);
  }
  body += fmt::format("    return v{};\n", inputs + steps.size() - 1);
  return fmt::format(
      R"(#include "cuda/fused_loop.cuh"
namespace {{
struct {0}_program {{
  using M = {1};
  using Result = {2};
  static constexpr int kInputs = {3}, kPack = {4};
  template <int N>
  static __device__ void load(const dltrain::FusedOperands& operands, int64_t at, M (*in)[N]) {{
{5}  }}
  static __device__ M run(const M* in) {{
{6}  }}
}};
}}
extern "C" __global__ void {0}(dltrain::FusedOperands operands, int64_t packs, int64_t count) {{
  dltrain::fused_loop<{0}_program>(operands, packs, count);
}}
)",
      name, types.result == DType::f64 ? "double" : "float", storage_of(types.result), inputs,
      fused_pack(types), loads, body);
}

}  // namespace dltrain

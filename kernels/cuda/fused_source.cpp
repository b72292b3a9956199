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
                         const std::vector<int64_t>& results, const std::string& name) {
  const size_t inputs = types.inputs.size();
  std::string loads, body, stores;
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
        "M({:.17g}), "
        "M({:.17g}));\n",
        inputs + i, step.op, step.operands.front(), step.operands.back(), step.p, step.q);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    body += fmt::format("    out[{}] = v{};\n", i, results[i]);
    stores +=
        fmt::format("    dltrain::store_elements<{1}, N>(out[{0}], operands.output[{0}], at);\n", i,
                    storage_of(types.result));
  }
  return fmt::format(
      R"(#include "cuda/fused_loop.cuh"
namespace {{
struct {0}_program {{
  using M = {1};
  static constexpr int kInputs = {2}, kResults = {3}, kPack = {4};
  template <int N>
  static __device__ void load(const dltrain::FusedOperands& operands, int64_t at, M (*in)[N]) {{
{5}  }}
  static __device__ void run(const M* in, M* out) {{
{6}  }}
  template <int N>
  static __device__ void store(M (*out)[N], const dltrain::FusedOperands& operands, int64_t at) {{
{7}  }}
}};
}}
extern "C" __global__ void {0}(dltrain::FusedOperands operands, int64_t packs, int64_t count) {{
  dltrain::fused_loop<{0}_program>(operands, packs, count);
}}
)",
      name, types.result == DType::f64 ? "double" : "float", inputs, results.size(),
      fused_pack(types), loads, body, stores);
}

}  // namespace dltrain

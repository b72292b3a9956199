#include "cuda/fused_source.h"

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

std::string fused_source(const std::vector<FusedStep>& steps, size_t inputs,
                         const std::vector<int64_t>& results, DType dtype,
                         const std::string& name) {
  check_internal(is_floating(dtype), "a program of {}", dtype_name(dtype));
  std::string body;
  for (size_t i = 0; i < inputs; ++i) body += fmt::format("    const M v{0} = in[{0}];\n", i);
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
  }
  return fmt::format(
      "#include \"cuda/fused_loop.cuh\"\n"
      "namespace {{\n"
      "struct {0}_program {{\n"
      "  using M = dltrain::MathOf<{1}>;\n"
      "  static constexpr int kInputs = {2}, kResults = {3};\n"
      "  static __device__ void run(const M* in, M* out) {{\n"
      "{4}"
      "  }}\n"
      "}};\n"
      "}}\n"
      "extern \"C\" __global__ void {0}(dltrain::FusedOperands operands, int64_t packs, int64_t "
      "count) "
      "{{\n"
      "  dltrain::fused_loop<{1}, {0}_program>(operands, packs, count);\n"
      "}}\n",
      name, storage_of(dtype), inputs, results.size(), body);
}

}  // namespace dltrain

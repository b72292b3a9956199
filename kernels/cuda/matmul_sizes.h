// The extents of a request of matmul, matmul_gelu, matmul_gelu_backward (lib/ops/matmul.cpp) or
// fp8_matmul (lib/ops/fp8.cpp), which is one with transpose_b.
#pragma once

#include "ops/kernel.h"
#include "ops/rules.h"

namespace dltrain {

struct MatmulSizes {
  int64_t m, n, k;
  bool transpose_a, transpose_b, has_bias;

  static bool has_operand(const KernelRequest& request, size_t i) {
    return request.inputs.size() > i && !is_absent(request.inputs[i]);
  }
  explicit MatmulSizes(const KernelRequest& request)
      : transpose_a(request.attributes.boolean("transpose_a")),
        transpose_b(request.attributes.boolean("transpose_b") || request.op == "fp8_matmul"),
        has_bias(has_operand(request, request.op == "fp8_matmul" ? 4 : 2) &&
                 request.op != "matmul_gelu_backward") {
    const Shape &a = request.inputs[0].shape, &b = request.inputs[1].shape;
    const int64_t rows = a.elements(0, a.rank() - 1), last = a[-1];
    m = transpose_a ? last : rows;
    k = transpose_a ? rows : last;
    n = transpose_b ? b[0] : b[1];
  }
};

}  // namespace dltrain

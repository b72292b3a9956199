// The extents of a matmul request (lib/ops/matmul.cpp), for both kernels that serve it.
#pragma once

#include "ops/kernel.h"
#include "ops/rules.h"

namespace dltrain {

struct MatmulSizes {
  int64_t m, n, k;
  bool transpose_a, transpose_b, has_bias;

  explicit MatmulSizes(const KernelRequest& request)
      : transpose_a(request.attributes.boolean("transpose_a")),
        transpose_b(request.attributes.boolean("transpose_b")),
        has_bias(request.op != "matmul_gelu_backward" && request.inputs.size() == 3 &&
                 !is_absent(request.inputs[2])) {
    const Shape &a = request.inputs[0].shape, &b = request.inputs[1].shape;
    const int64_t rows = a.elements(0, a.rank() - 1), last = a[-1];
    m = transpose_a ? last : rows;
    k = transpose_a ? rows : last;
    n = transpose_b ? b[0] : b[1];
  }
};

}  // namespace dltrain

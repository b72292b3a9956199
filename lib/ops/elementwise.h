// Numeric parameters of some element-wise ops (affine: scale and shift). Attributes name them;
// kernels and fused programs use them in this order as p and q.
#pragma once

#include <span>
#include <string_view>

#include "ops/attributes.h"

namespace dltrain {

struct ElementwiseParameter {
  std::string_view attribute;
  double fallback;  // when the attribute is not set
};

// Returns at most two entries; none for an op without parameters or an unknown one.
std::span<const ElementwiseParameter> elementwise_parameters(std::string_view op);

struct ElementwiseNumbers {
  double p = 0, q = 0;  // 0 where the op has none
};
ElementwiseNumbers elementwise_numbers(std::string_view op, const Attributes& attributes);

}  // namespace dltrain

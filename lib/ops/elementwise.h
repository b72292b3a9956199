// The numbers that some element-wise ops have besides their operands (affine: scale and shift).
// Attributes name them; kernels and fused programs know them by their order, as p and q.
#pragma once

#include <span>
#include <string_view>

#include "ops/attributes.h"

namespace dltrain {

struct ElementwiseParameter {
  std::string_view attribute;
  double fallback;  // when the attribute is not set
};

// At most two; none for an op without parameters or an unknown one.
std::span<const ElementwiseParameter> elementwise_parameters(std::string_view op);

struct ElementwiseNumbers {
  double p = 0, q = 0;  // 0 where the op has none
};
ElementwiseNumbers elementwise_numbers(std::string_view op, const Attributes& attributes);

}  // namespace dltrain

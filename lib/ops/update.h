// Functions that the ops of several optimizers use.
#pragma once

#include "ops/op.h"

namespace dltrain {

// Elements of a block of moments in 8 bits, as bitsandbytes has it.
inline constexpr int64_t kMomentBlock = 256;
inline int64_t moment_blocks(int64_t elements) {
  return (elements + kMomentBlock - 1) / kMomentBlock;
}

// Checks that the attributes group and rounding fit the number of parameters, and that moments in
// 8 bits have a scale a block.
void check_update(SpecSpan inputs, const Attributes& attributes);

// A tensor as Adafactor sees it, and the elements [begin, begin + count) of it that an op is given.
struct AdafactorMatrix {
  bool factored;
  int64_t rows, columns;  // 1 row where not factored
  int64_t begin, count;

  // The number of sums that the op adafactor_sums makes of the tensor.
  int64_t sums() const { return 1 + (factored ? rows + columns : 0); }
};
// `p`: the shape of the op's parameter `tensor`.
AdafactorMatrix adafactor_matrix(const Attributes& attributes, size_t tensor, const Shape& p);

}  // namespace dltrain

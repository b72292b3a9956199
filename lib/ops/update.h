// Shape and alias rules that the optimizers' ops share.
#pragma once

#include "ops/op.h"

namespace dltrain {

// Checks inputs after the state, `roles` lists of `count` tensors of equal shape, and the groups of
// the attributes; returns the specs of the outputs: parameters and moments.
SpecList infer_update(std::string_view op, SpecSpan inputs, const Attributes& attributes,
                      size_t roles);
// The part of infer_update that concerns the parameters and gradients alone.
void expect_parameters_and_gradients(std::string_view op, SpecSpan inputs,
                                     const Attributes& attributes, size_t roles);
// Parameters and present moments are written in place.
SpecList written_by_update(SpecSpan inputs, const Attributes& attributes);
std::vector<int> aliases_update(SpecSpan inputs, const Attributes& attributes);

// A tensor as Adafactor sees it, and the elements [begin, begin + count) of it that an op is given.
struct AdafactorMatrix {
  bool factored;
  int64_t rows, columns;  // 1 row where not factored
  int64_t begin, count;
};
// `p`: the shape of the op's parameter `tensor`.
AdafactorMatrix adafactor_matrix(const Attributes& attributes, size_t tensor, const Shape& p);

}  // namespace dltrain

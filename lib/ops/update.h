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

}  // namespace dltrain

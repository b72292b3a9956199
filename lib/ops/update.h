// Shape and alias rules that the optimizers' ops share.
#pragma once

#include "ops/op.h"

namespace dltrain {

// Checks inputs after the state, `roles` lists of `count` tensors alike in shape, and the groups of
// the attributes; the specs of what is written: parameters and moments.
SpecList infer_update(std::string_view op, SpecSpan inputs, const Attributes& attributes,
                      size_t roles);
// The part of it that concerns the parameters and gradients alone.
void expect_parameters_and_gradients(std::string_view op, SpecSpan inputs,
                                     const Attributes& attributes, size_t roles);
// Parameters and present moments are written in place.
SpecList written_by_update(SpecSpan inputs, const Attributes& attributes);
std::vector<int> aliases_update(SpecSpan inputs, const Attributes& attributes);

}  // namespace dltrain

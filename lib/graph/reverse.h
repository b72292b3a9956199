// The reverse pass (reverse-mode automatic differentiation on the graph): appends the backward of
// every loss, using the gradient rules of the ops.
#pragma once

#include <utility>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

struct ParameterGradient {
  ValueId parameter;
  ValueId gradient;  // role gradient, named "gradient of <parameter>", in the accumulation dtype
};

// Losses of a micro-batch (f64 [N]) that are added to the loss with these weights. They are means,
// so the weights contain 1 / the number of micro-batches in the global batch.
struct AddedLosses {
  ValueId value = kNoValue;
  std::vector<double> weights;
};

// `losses` are scalar sums (f64 [1]); each is seeded with loss_seed (loss_scale / valid targets of
// the global batch), `added` with loss_scale · weights. Gradients are computed for `parameters`;
// those that no loss depends on are left out of the result (callers report them as unused). The
// result is in order of production, which is the order in which reductions can start. A
// low-precision copy (GraphValue::of) counts as its parameter: their gradients are added up in
// the accumulation dtype. The gradient of any other value has the value's dtype, whatever dtype a
// gradient rule gave it.
std::vector<ParameterGradient> reverse(Graph& graph, const std::vector<ValueId>& losses,
                                       const std::vector<ValueId>& parameters,
                                       const std::vector<AddedLosses>& added = {});

}  // namespace dltrain

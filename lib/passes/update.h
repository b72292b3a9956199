// Appends the update segment: gradient norm (with clipping and the finite flag), the optimizer, and
// the state updates that layers asked for.
#pragma once

#include <vector>

#include "graph/reverse.h"
#include "nn/layer.h"
#include "optim/optimizer.h"

namespace dltrain {

void emit_update(Graph& graph, const Optimizer& optimizer,
                 const std::vector<ParameterGradient>& gradients,
                 const std::vector<LayerContext::DeferredUpdate>& updates);

}  // namespace dltrain

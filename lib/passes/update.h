// Appends the update segment: gradient norm (with clipping and the finite flag), the optimizer, the
// state updates that layers requested, and the averages of the results.
#pragma once

#include <vector>

#include "graph/reverse.h"
#include "nn/layer.h"
#include "optim/optimizer.h"
#include "optim/update_config.h"

namespace dltrain {

struct UpdateRequest {
  const Optimizer& optimizer;
  const UpdateConfig& config;
  const std::vector<ParameterGradient>& gradients;
  const std::vector<LayerContext::DeferredUpdate>& updates;
  const std::vector<ValueId>& learning;  // parameters that are not frozen, used or not
};

void emit_update(Graph& graph, const UpdateRequest& request);

// Makes a graph of evaluation read averages instead of buffers and trained parameters.
void read_averages(Graph& graph, const std::vector<ValueId>& learning);

}  // namespace dltrain

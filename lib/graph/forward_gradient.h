// The forward gradient (Baydin et al. 2022, "Gradients without Backpropagation"): for a random
// direction v of all parameters, v ~ N(0, I), forward-mode differentiation gives the derivative
// ∇f·v of the loss along it while the forward runs, and (∇f·v)·v is an unbiased estimate of ∇f.
// Nothing is kept for a backward, so the memory of activations does not grow with depth.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "graph/reverse.h"

namespace dltrain {

// In place of reverse(): adds the tangents (ops/tangents.h) after the nodes that they belong to,
// and appends the gradients of `parameters` to the backward, estimates that are averaged over
// `directions`. Directions depend on the run's seed, the step and the parameter's name: those of
// all micro-batches and ranks are equal. `loss` is a scalar sum (f64 [1]); `added` as of reverse().
// Throws Error(usage), with the layer as its place, for an op without a tangent rule.
std::vector<ParameterGradient> forward_gradient(Graph& graph, ValueId loss,
                                                const std::vector<ValueId>& parameters,
                                                int directions,
                                                const std::vector<AddedLosses>& added = {});

}  // namespace dltrain

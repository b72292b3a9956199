// Sums of squares of gradients, from which the noise of the gradient follows
// (run/gradient_noise.h).
#pragma once

#include <vector>

#include "graph/reverse.h"

namespace dltrain {

// Adds a metric `name` (f64 [1]): the sum, over the micro-batches of all ranks, of the squares of
// the gradients that a rank has added up so far, which include loss_scale. Each gradient is read
// after its last writer. Runs after the reverse pass; not for sharded gradients.
void emit_gradient_squares(Graph& graph, const std::vector<ParameterGradient>& gradients,
                           const std::string& name);

}  // namespace dltrain

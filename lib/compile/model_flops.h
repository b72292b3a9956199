// The FLOP that a training step requires, independent of the implementation: the numerator of model
// FLOP utilisation (MFU).
#pragma once

#include "graph/graph.h"

namespace dltrain {

// FLOP of one micro-batch: matrix products, convolutions, attention and recurrent layers, forward
// and backward. For a transformer without frozen parameters this is, per token, 6 times the weights
// of its matrix products (the output layer included, look-ups in embeddings not), and 6 · L · d · T
// for causal attention, 12 · L · d · T for that which sees all tokens (L layers of width d, T
// tokens). Recomputation in the backward of attention does not count, nor does memory.recompute:
// call it before that pass.
double model_flops(const Graph& graph);

}  // namespace dltrain

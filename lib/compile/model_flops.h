// The arithmetic that a training step asks for, whatever way it is carried out: the measure of
// model FLOP utilisation (MFU).
#pragma once

#include "graph/graph.h"

namespace dltrain {

// FLOP of one micro-batch: matrix products, convolutions, attention and recurrent layers, forward
// and backward. Of a transformer whose parameters all learn this is, for each token, 6 times the
// weights of its matrix products (the output layer included, look-ups in embeddings not), and 6 · L
// · d · T for causal attention, 12 · L · d · T for that which sees all tokens (L layers of width d,
// T tokens). What the backward of attention computes a second time does not count, nor does what
// memory.recompute does: call it before that pass.
double model_flops(const Graph& graph);

}  // namespace dltrain

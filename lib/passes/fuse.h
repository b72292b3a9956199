// Fusion: fewer passes over memory. It runs after the reverse pass, since fused nodes have no
// gradient rule. Results may differ from the unfused graph in the last bits, as values that stay in
// registers are not rounded to their dtype (docs/equality.md).
#pragma once

#include "graph/graph.h"

namespace dltrain {

struct FuseOptions {
  // For engines with kernels for norms + neighbours (passes/fuse_norms.h); across blocks or not.
  bool join_norms = false, across_blocks = true;
  bool recompute_gates = false;  // see recompute_gates()
  bool join_gelu = false;        // see join_gelu()
};

// Three rewrites in this order:
//
// Epilogues: a matmul or conv2d whose output is read once, by an activation (relu, gelu, gelu_tanh,
//   silu, tanh, sigmoid) of the same phase and spec, takes it over as its attribute `activation`.
//
// Norms: relu, and the residual before it, into batch norm and its gradient (passes/fuse_norms.h);
//   with `join_norms` what surrounds layer and RMS norms.
//
// Element-wise groups: element-wise nodes (but identity) over operands of one shape, within one
//   phase, whose results except the last are read only inside the group, become one
//   fused_elementwise at the place of the last one. Casts among f32, bf16 and f16 belong to it:
//   what a step computes stays in f32 until it is written. A group has at most 16 inputs and 16
//   nodes, all of one block (Node::block).
//
// The kernels that write sums over micro-steps (gradients, statistics, metrics) are not fused,
// since they must be able to accumulate. The order of the other nodes does not change.
Graph fuse(Graph graph, const FuseOptions& options = {});

// Makes the backward compute activations anew that only its element-wise nodes read, beside their
// own input: silu(gate) of a gated unit. They become a part of its groups there: a tensor less to
// write, to keep and to read.
void recompute_gates(Graph& graph);

// For engines whose products apply GELU before they are written: gelu_tanh of a product in 16 bits
// that the backward reads too becomes a matmul_gelu, and gelu_tanh_backward of a gradient that is
// such a product, which nothing else reads, a matmul_gelu_backward. Not with selective
// recomputation, which keeps the product and computes GELU of it anew.
void join_gelu(Graph& graph);

}  // namespace dltrain

// FP8 training (Micikevicius et al. 2022, "FP8 Formats for Deep Learning"): the products of linear
// layers, in the forward and for both gradients, have operands that are rounded to FP8 with scales
// that are powers of two. The other ops, the model's last linear layer, evaluation and the update
// compute as with `compute: bf16`.
//
//   delayed    E4M3 for activations and weights, E5M2 for gradients; a tensor has the scale that
//              the greatest of the last `history` steps needed
//   current    the same formats; the scale that the tensor itself needs
//   blockwise  E4M3; a scale for 128 elements of activations and gradients along the sum, and for
//              128 x 128 of weights (DeepSeek-V3 2024, section 3.3)
//   mxfp8      E4M3; a scale for 32 elements along the sum (OCP Microscaling Formats 1.0, with
//              scales rounded up as NVIDIA's)
//
// Scales of a tensor are those of all ranks that hold parts of it; those of `current` depend on the
// micro-batch, those of `delayed` on the global batch only.
#pragma once

#include <string>
#include <vector>

#include "comm/mesh.h"
#include "nn/layer.h"
#include "passes/precision_config.h"

namespace dltrain {

// Marks the products of a forward graph that are FP8's, whose gradients will be too. Runs after
// autocast. Throws ConfigError for patterns that match no linear layer, and if none is left.
void mark_fp8(Graph& graph, const Fp8Config& fp8);

struct Fp8State {
  std::vector<LayerContext::DeferredUpdate> updates;  // of scales (delayed)
  // The metric of each layer, f64 [3]: the sums over its operands and over micro-batches of the
  // share that is saturated and of that which becomes 0; the number of the terms.
  std::vector<std::string> metrics;
};
// Emits the rounding of the operands of marked products. Runs after the reverse pass. `mesh`: of
// the ranks. `codes`: rounded operands are codes of FP8, and the products fp8_matmul, which adds up
// the same terms (lib/ops/fp8.cpp).
Fp8State round_fp8(Graph& graph, const Fp8Config& fp8, const Mesh& mesh, bool codes);

}  // namespace dltrain

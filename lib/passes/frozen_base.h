// The frozen base of a model with adapters (nn/lora.h), after the update segment is there, in
// training, evaluation and decoding alike:
//
//   * base other than f32, in bf16: no f32 masters of frozen parameters that only products read
//     (passes/narrow_parameters.h).
//   * base: int8, nf4: weights with ParameterInfo::codes are replaced by constants "codes of
//     <weight>", "absmax of <weight>" (tensor/weight_codes.h). Before each node that reads the
//     weight, in the forward and again in the backward, a node `dequantize` expands it to the dtype
//     that the node reads, so that nothing expanded outlives one product.
//   * save: adapters: frozen parameters are constants, so that checkpoints do not hold them.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "nn/lora.h"
#include "nn/parameters.h"

namespace dltrain {

// Runs where narrow_parameters() runs. `low`: the dtype of precision.compute.
Graph keep_base(Graph graph, const std::vector<ParameterInfo>& parameters, const LoraConfig& lora,
                DType low);

}  // namespace dltrain

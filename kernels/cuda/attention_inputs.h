// The inputs of attention's kernels, and small kernels that convert those that cuDNN does not know:
// masks and the step's random numbers.
#pragma once

#include <span>

#include "cuda/attention.h"
#include "cuda/launch.h"
#include "ops/kernel.h"

namespace dltrain {

// `inputs` begin with the queries.
AttentionCall read_attention_call(const KernelRequest& request, SpecSpan inputs);
AttentionInputs read_attention_inputs(const AttentionCall& call, std::span<void* const> inputs);

// The bias of a mask: [samples, rows, stride], of which the first `keys` columns are read.
struct AttentionBias {
  int64_t rows, stride;
};

// With a mask writes a bias in 16 bits, which added to the scores leaves no weight to invalid keys.
// With dropout writes random[0], a seed for this layer, step and micro-batch, and random[2],
// cuDNN's offset: 0, or for a rank's heads that of the first (cuDNN needs addresses aligned to 16
// bytes).
void launch_attention_inputs(const AttentionCall& call, const AttentionInputs& in,
                             const AttentionBias& layout, void* bias, uint64_t* random,
                             CudaStream stream);

// For a mask other than of documents, without a window: sets y of queries without a key to 0 and
// their sums to +∞, so that the backward has no gradients of them.
void launch_queries_without_keys(const AttentionCall& call, const AttentionInputs& in, void* y,
                                 float* sums, CudaStream stream);

}  // namespace dltrain

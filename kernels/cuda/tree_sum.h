// Queues tree_sum (lib/ops/tree_sum.cpp) over many tensors at once: one block for each piece of
// kTreeSumChunk elements. Which partial sums a micro-batch meets is read on the device, so that one
// captured call serves every micro-batch.
#pragma once

#include "cuda/launch.h"
#include "ops/step_state.h"
#include "tensor/dtype.h"

namespace dltrain {

inline constexpr int64_t kTreeSumChunk = 8192;  // elements

struct TreeSumCall {
  DType dtype = DType::f32;  // f32 or f64
  int64_t chunks = 0;
  int64_t levels = 0;
  int64_t micro_batch = 1, micro_steps = 1;
};

// Device memory: for each chunk 1 + levels addresses (x, then its partial sums from the lowest
// level), and its number of elements.
void launch_tree_sum(const TreeSumCall& call, const StepState* state, void* const* addresses,
                     const int64_t* counts, CudaStream stream);

}  // namespace dltrain

// Queues the element-wise part of recurrent networks (lib/ops/recurrent.cpp has the formulas): the
// part of a step after the product of weight and state, and its backward. Work of one step is
// dense, [samples, …]; the op's tensors are by token. Absent optional addresses are nullptr.
//
// dtype: f32, f64, bf16 or f16 of the op's tensors (T); M is its accumulation dtype.
#pragma once

#include "cuda/launch.h"
#include "ops/recurrent.h"

namespace dltrain {

struct RecurrentCall : RecurrentSizes {
  DType dtype = DType::f32;
};

struct RecurrentData {
  const void *x = nullptr, *bias = nullptr;
  const void *initial_state = nullptr, *initial_cell = nullptr;
  const void* product = nullptr;  // M [samples, width]: state · Wᵀ
  void* cell = nullptr;           // M [samples, hidden]: c of an LSTM, h of a GRU
  void* state = nullptr;          // T [samples, hidden]: h, for the next product
  void *y = nullptr, *gates = nullptr, *cells = nullptr;
};

// Sets state and cells before the first token.
void launch_recurrent_start(const RecurrentCall& call, const RecurrentData& data,
                            CudaStream stream);
// Runs step i; without `has_product` the product is zero.
void launch_recurrent_step(const RecurrentCall& call, const RecurrentData& data, int64_t i,
                           bool has_product, CudaStream stream);

struct RecurrentBackwardData {
  const void *dy = nullptr, *y = nullptr, *gates = nullptr, *cells = nullptr;
  const void *initial_state = nullptr, *initial_cell = nullptr;
  void* dstate =
      nullptr;  // M [samples, hidden]: of h; becomes the gradient that bypasses the product
  void* dcell = nullptr;   // M [samples, hidden]: of c of an LSTM
  void* dx = nullptr;      // T [samples, tokens, width]
  void* dz = nullptr;      // T [samples, width]: of the product, for this step
  void* dz_all = nullptr;  // T [samples, tokens, width]: the same by token; may be dx
};

// Runs the backward of step i, from the last to the first. The last step treats dstate and dcell as
// zero.
void launch_recurrent_backward_step(const RecurrentCall& call, const RecurrentBackwardData& data,
                                    int64_t i, CudaStream stream);
// Writes the state before each token to `before`, T [samples, tokens, hidden].
void launch_states_before(const RecurrentCall& call, const void* y, const void* initial_state,
                          void* before, CudaStream stream);

}  // namespace dltrain

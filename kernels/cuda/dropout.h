// Queues dropout: y = x / (1 − rate) where kept, else 0 (lib/ops/dropout.cpp), element by element
// or one draw a channel of a sample (lib/ops/dropout2d.cpp).
#pragma once

#include "cuda/launch.h"
#include "ops/step_state.h"
#include "tensor/dtype.h"

namespace dltrain {

struct DropoutCall {
  DType dtype = DType::f32;  // floating
  double rate = 0;
  uint64_t stream = 0;  // of random numbers
  int64_t count = 0;    // elements of the micro-batch
  int64_t per_sample = 0;
  int64_t channels = 0;  // of dropout2d
};

// y may be x.
void launch_dropout(const DropoutCall& call, const void* x, const StepState* state, void* y,
                    CudaStream stream);

void launch_dropout2d(const DropoutCall& call, const void* x, const StepState* state, void* y,
                      CudaStream stream);

}  // namespace dltrain

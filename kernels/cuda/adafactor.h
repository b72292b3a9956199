// Queues adafactor_update (lib/ops/update_adaptive.cpp) over all tensors at once: lists of chunks,
// rows and columns in device memory, a block each. A tensor of two axes and more is a matrix of its
// first axis by the rest; one of fewer keeps a variance for each element.
#pragma once

#include "cuda/launch.h"
#include "ops/step_state.h"
#include "shared/adafactor_rules.h"
#include "tensor/dtype.h"

namespace dltrain {

inline constexpr int64_t kAdafactorChunk = 8192;  // elements of a block
inline constexpr int64_t kAdafactorRows = 8;      // rows of a block: one a warp
inline constexpr int64_t kAdafactorColumns = 32;  // columns of a block: one a lane

struct AdafactorTensor {
  void *parameter, *gradient, *row, *column;
  int64_t rows, columns;  // 1 row where not factored
  bool factored;
  GroupSettings group;
  int64_t first_chunk, chunks;
};

// Elements, rows or columns [begin, begin + count) of a tensor.
struct AdafactorPart {
  int64_t tensor, begin, count;
};
struct AdafactorParts {
  const AdafactorPart* parts = nullptr;  // device memory
  int64_t count = 0;
};

// What a tensor's elements share in this step.
struct AdafactorFactors {
  double parameter_rms, inverse_mean, step;
};

struct AdafactorCall {
  DType dtype = DType::f32;  // or f64
  AdafactorRule rule;
  const AdafactorTensor* tensors = nullptr;  // device memory
  int64_t tensor_count = 0;
  AdafactorParts chunks, rows, columns;
  double* sums = nullptr;               // scratch: of each chunk
  AdafactorFactors* factors = nullptr;  // scratch: of each tensor
};

void launch_adafactor_update(const AdafactorCall& call, const StepState* state, CudaStream stream);

}  // namespace dltrain

// Queues layer_norm and rms_norm over x [rows, columns] and their gradients (lib/ops/layer_norm.cpp
// has the formulas). x, y and their gradients have `dtype`: f32, f64, bf16 or f16; weight, bias,
// statistics and their gradients its accumulation dtype. Absent tensors are nullptr.
#pragma once

#include "cuda/launch.h"
#include "tensor/dtype.h"

namespace dltrain {

struct RowNormCall {
  DType dtype = DType::f32;
  int64_t rows = 0, columns = 0;
  double epsilon = 1e-5;
  bool centred = true;  // layer_norm; false: rms_norm, which has no mean and no bias
};

void launch_row_norm(const RowNormCall& call, const void* x, const void* weight, const void* bias,
                     void* y, void* mean, void* rstd, CudaStream stream);

// Of the accumulation dtype, for launch_row_norm_parameters.
int64_t row_norm_workspace_elements(const RowNormCall& call);

// dx.
void launch_row_norm_backward(const RowNormCall& call, const void* x, const void* dy,
                              const void* weight, const void* mean, const void* rstd, void* dx,
                              CudaStream stream);
// dweight and dbias, each if it is there.
void launch_row_norm_parameters(const RowNormCall& call, const void* x, const void* dy,
                                const void* mean, const void* rstd, void* dweight, void* dbias,
                                void* workspace, CudaStream stream);

}  // namespace dltrain

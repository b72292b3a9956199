// Queues element-wise kernels that other kernels use.
#pragma once

#include "cuda/launch.h"
#include "shared/elementwise.h"
#include "tensor/dtype.h"

namespace dltrain {

// y[row, column] = op(y[row, column] + bias[column]) in place: the end of a matmul or convolution
// for which the vendor has no epilogue. bias may be nullptr.
void launch_bias_activation(ElementwiseOp op, DType dtype, const void* bias, void* y, int64_t rows,
                            int64_t columns, CudaStream stream);

// y = x in another dtype, or y += x. Floating values become integers by truncation, as in C.
void launch_cast(DType from, DType to, const void* x, void* y, int64_t count, CudaStream stream,
                 bool accumulate = false);

}  // namespace dltrain

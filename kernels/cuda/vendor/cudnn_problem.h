// Convolutions of kernel requests as cuDNN's.
#pragma once

#include <string>

#include "cuda/vendor/cudnn_operations.h"
#include "ops/kernel.h"

namespace dltrain {

// Image, weights and result of the forward, whatever the pass; attributes as conv2d has them.
ConvolutionProblem read_convolution(const KernelRequest& request, ConvolutionPass pass,
                                    const Shape& x, const Shape& w, const Shape& y);
// "convolution forward bf16, 64 of 56x56x64 to …": the key of choices.
std::string describe(const ConvolutionProblem& problem);

}  // namespace dltrain

// Converts convolutions of kernel requests to cuDNN's problems.
#pragma once

#include <string>

#include "cuda/vendor/cudnn_operations.h"
#include "ops/kernel.h"

namespace dltrain {

// x, w and y are those of the forward for every pass; attributes are those of conv2d.
ConvolutionProblem read_convolution(const KernelRequest& request, ConvolutionPass pass,
                                    const Shape& x, const Shape& w, const Shape& y);
// "convolution forward bf16, 64 of 56x56x64 to …": the key of tuned choices.
std::string describe(const ConvolutionProblem& problem);

}  // namespace dltrain

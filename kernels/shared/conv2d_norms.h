// conv2d_moments and conv2d_batch_norm (lib/ops/conv2d_norms.cpp) as two kernels: the engine's
// convolution, then its kernel for the norm's part.
#pragma once

#include "device/engine.h"
#include "ops/kernel.h"

namespace dltrain {

// `moments`: maker of the kernel (y) → mean, variance.
std::unique_ptr<Kernel> make_two_step_moments(const KernelRequest& request, const Engine& engine,
                                              KernelMaker moments);
// The second step is batch_norm_inference, in place of the convolution's result.
std::unique_ptr<Kernel> make_two_step_batch_norm(const KernelRequest& request,
                                                 const Engine& engine);

}  // namespace dltrain

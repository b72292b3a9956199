// matmul_gelu and matmul_gelu_backward (lib/ops/matmul.cpp) composed of the engine's kernels of
// matmul, gelu_tanh and gelu_tanh_backward. Every engine has rows of them (kernel_part.h), so that
// it can run the ops; the fuse pass creates them only for engines with a better kernel.
#pragma once

#include "device/engine.h"
#include "ops/kernel.h"

namespace dltrain {

std::unique_ptr<Kernel> make_matmul_gelu_of_parts(const KernelRequest& request,
                                                  const Engine& engine);
std::unique_ptr<Kernel> make_matmul_gelu_backward_of_parts(const KernelRequest& request,
                                                           const Engine& engine);

}  // namespace dltrain

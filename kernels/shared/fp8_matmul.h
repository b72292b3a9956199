// fp8_matmul (lib/ops/fp8.cpp) composed of the engine's fp8_values and matmul: values of FP8 codes
// times a power of two are exact in bf16. Every engine has a row of it (kernel_part.h); the pass
// emits the op only for devices whose tensor cores take FP8.
#pragma once

#include "device/engine.h"
#include "ops/kernel.h"

namespace dltrain {

std::unique_ptr<Kernel> make_fp8_matmul_of_parts(const KernelRequest& request,
                                                 const Engine& engine);
// The same for an engine without bf16: in the dtype of the scales.
std::unique_ptr<Kernel> make_wide_fp8_matmul_of_parts(const KernelRequest& request,
                                                      const Engine& engine);

}  // namespace dltrain

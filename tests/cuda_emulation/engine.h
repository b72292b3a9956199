// The CUDA engine without a GPU: its own kernels over the emulation, in ordinary memory.
#pragma once

#include "device/engine.h"

namespace dltrain {

const Engine& emulated_cuda_engine();

}  // namespace dltrain

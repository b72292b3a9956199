// The CUDA engine's own device layer and kernels, over the fake runtime and the emulation.
#pragma once

#include "device/engine.h"

namespace dltrain {

const Engine& fake_cuda_engine();

}  // namespace dltrain

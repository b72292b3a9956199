// The CUDA engine's own device layer and kernels, over the fake runtime and the emulation.
#pragma once

#include <vector>

#include "device/engine.h"
#include "ops/kernel.h"

namespace dltrain {

const Engine& fake_cuda_engine();
// The same with `rows` before those of its own kernels, which are appended to `rows`. The engine
// points into `rows`, which must outlive it.
Engine fake_engine_with(std::vector<KernelRow>& rows);
// The same with the recurrent networks of cuDNN (the tests' own: fake_cudnn_rnn.cpp).
const Engine& fake_cudnn_engine();

}  // namespace dltrain

// The CUDA engine's own device layer and kernels, over the fake runtime and the emulation.
#pragma once

#include "device/engine.h"

namespace dltrain {

const Engine& fake_cuda_engine();
// The same with the recurrent networks of cuDNN (the tests' own: fake_cudnn_rnn.cpp).
const Engine& fake_cudnn_engine();

}  // namespace dltrain

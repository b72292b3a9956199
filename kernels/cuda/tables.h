// The kernel tables of the CUDA engine.
//
// Own kernels are plain CUDA (no vendor library, no inline PTX): the same sources run on the CPU
// under tests/cuda_emulation. Vendor rows come first in the engine's table.
#pragma once

#include <span>

#include "ops/kernel.h"

namespace dltrain {

std::span<const KernelRow> cuda_vendor_rows();  // vendor/table.cpp
std::span<const KernelRow> cuda_own_rows();     // table.cpp

// The engine of these kernels: the plug-in's, or the emulated one of the tests.
const Engine& cuda_engine();

}  // namespace dltrain

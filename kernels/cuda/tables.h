// The kernel table of the CUDA engine.
//
// Own kernels are plain CUDA (no vendor library, no inline PTX): the same sources run on the CPU
// under tests/cuda_emulation. vendor/table.cpp puts the vendors' rows before them.
#pragma once

#include <span>

#include "ops/kernel.h"

namespace dltrain {

std::span<const KernelRow> cuda_own_rows();  // table.cpp

// The engine of these kernels: the plug-in's, or the emulated one of the tests.
const Engine& cuda_engine();

}  // namespace dltrain

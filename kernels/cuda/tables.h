// The kernel table of the CUDA engine.
//
// Own kernels use no vendor library, and inline PTX only beside C++ that does the same: their
// sources run on the CPU too, under tests/cuda_emulation. vendor/table.cpp puts the vendors' rows
// before them.
#pragma once

#include <span>

#include "ops/kernel.h"

namespace dltrain {

std::span<const KernelRow> cuda_own_rows();  // table.cpp

// The engine of these kernels: the plug-in's, or the emulated one of the tests.
const Engine& cuda_engine();

}  // namespace dltrain

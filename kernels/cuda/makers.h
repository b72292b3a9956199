// The kernel makers of the CUDA engine and their two tables.
//
// Own kernels are plain CUDA (no vendor library, no inline PTX): the same sources run on the CPU
// under tests/cuda_emulation. Vendor rows come first in the engine's table.
#pragma once

#include <span>

#include "ops/kernel.h"

namespace dltrain {

std::span<const KernelRow> cuda_vendor_rows();  // vendor_table.cpp
std::span<const KernelRow> cuda_own_rows();     // own_table.cpp

// Each returns nullptr for dtypes and attributes it does not serve.
using Maker = std::unique_ptr<Kernel>(const KernelRequest&);
Maker make_cuda_elementwise, make_cuda_cast, make_cuda_broadcast, make_cuda_fused;

}  // namespace dltrain

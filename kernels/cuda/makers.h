// The kernel makers of the CUDA engine and their two tables.
//
// Own kernels are plain CUDA (no vendor library, no inline PTX): the same sources run on the CPU
// under tests/cuda_emulation. Vendor rows come first in the engine's table.
#pragma once

#include <span>

#include "ops/kernel.h"

namespace dltrain {

std::span<const KernelRow> cuda_vendor_rows();  // vendor/table.cpp
std::span<const KernelRow> cuda_own_rows();     // table.cpp

// Each returns nullptr for dtypes and attributes it does not serve.
using Maker = std::unique_ptr<Kernel>(const KernelRequest&);
Maker make_cuda_elementwise, make_cuda_cast, make_cuda_broadcast, make_cuda_fused;
Maker make_cuda_reduce;
Maker make_cuda_plain_matmul;
Maker make_cuda_plain_conv2d, make_cuda_plain_conv2d_input, make_cuda_plain_conv2d_weight;
Maker make_cuda_max_pool2d, make_cuda_max_pool2d_backward;
Maker make_cuda_batch_norm, make_cuda_batch_norm_backward, make_cuda_batch_norm_inference;
Maker make_cuda_batch_norm_update;
Maker make_cuda_dropout;
Maker make_cuda_cross_entropy, make_cuda_cross_entropy_backward;
Maker make_cuda_all_reduce_begin, make_cuda_all_reduce_end;  // of one rank
Maker make_cuda_loss_seed, make_cuda_gradient_norm, make_cuda_element_update;

}  // namespace dltrain

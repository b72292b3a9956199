// Kernels by cuBLASLt, cuDNN and NVRTC. None has run on a GPU yet, so every row is unproven;
// tests/cuda_engine builds the plans of the cuDNN rows from descriptions of GPUs.
#include "cuda/makers.h"
#include "cuda/vendor/makers.h"

namespace dltrain {
namespace {

constexpr bool kVendorAccumulates = true, kOverwrites = false, kUnproven = false;

constinit const KernelRow kVendorRows[] = {
    {"matmul", "cuBLASLt", make_blas_matmul, kVendorAccumulates, kUnproven},
    {"conv2d", "cuDNN", make_cudnn_conv2d, kOverwrites, kUnproven},
    {"conv2d_backward_input", "cuDNN", make_cudnn_conv2d_input, kVendorAccumulates, kUnproven},
    {"conv2d_backward_weight", "cuDNN", make_cudnn_conv2d_weight, kVendorAccumulates, kUnproven},
    {"recurrent_network", "cuDNN", make_cudnn_recurrent, kOverwrites, kUnproven,
     cudnn_recurrent_kept_bytes},
    {"recurrent_network_backward", "cuDNN", make_cudnn_recurrent_backward, kOverwrites, kUnproven},
    {"fused_elementwise", "NVRTC", make_nvrtc_fused, kOverwrites, kUnproven},
#if defined(DLTRAIN_CUDNN_FRONTEND)
    {"attention", "cuDNN", make_cudnn_attention, kOverwrites, kUnproven},
    {"attention_backward", "cuDNN", make_cudnn_attention_backward, kOverwrites, kUnproven},
#endif
};

}  // namespace

std::span<const KernelRow> cuda_vendor_rows() {
  return kVendorRows;
}

}  // namespace dltrain

// Kernels by cuBLASLt, cuDNN and NVRTC. None has run on a GPU yet, so every row is unproven;
// tests/cuda_engine builds the plans of the cuDNN rows from descriptions of GPUs.
#include "cuda/makers.h"
#include "cuda/tables.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/requests.h"
#include "ops/kernel_refused.h"

namespace dltrain {
namespace {

#if defined(DLTRAIN_CUDNN_FRONTEND)
constexpr const char* kAttentionLacks = "";
#else
constexpr const char* kAttentionLacks =
    "this build has no cuDNN attention: run scripts/cudnn_frontend.sh and build again";
#endif

std::string attention_missing(Device* device) {
  const auto* cuda = dynamic_cast<const CudaDevice*>(device);
  const bool old = cuda != nullptr && cuda->architecture() < 80;
  return old ? "cuDNN's attention needs sm_80 or newer" : kAttentionLacks;
}

constexpr bool kVendorAccumulates = true, kOverwrites = false, kUnproven = false;

constinit const KernelRow kVendorRows[] = {
    {"matmul", "cuBLASLt", make_blas_matmul, kVendorAccumulates, kUnproven},
    {"conv2d", "cuDNN", make_cudnn_conv2d, kOverwrites, kUnproven},
    {"conv2d_backward_input", "cuDNN", make_cudnn_conv2d_input, kVendorAccumulates, kUnproven},
    {"conv2d_backward_weight", "cuDNN", make_cudnn_conv2d_weight, kVendorAccumulates, kUnproven},
    {"recurrent_network", "cuDNN", make_cudnn_recurrent, kOverwrites, kUnproven,
     cudnn_recurrent_kept_bytes},
    {"recurrent_network_backward", "cuDNN", make_cudnn_recurrent_backward, kOverwrites, kUnproven},
    {"fused_elementwise", "NVRTC", make_nvrtc_fused, kOverwrites, kUnproven, nullptr,
     nvrtc_missing},
    {"attention", "cuDNN", make_cudnn_attention, kOverwrites, kUnproven, nullptr,
     attention_missing},
    {"attention_backward", "cuDNN", make_cudnn_attention_backward, kOverwrites, kUnproven, nullptr,
     attention_missing},
};

}  // namespace

#if !defined(DLTRAIN_CUDNN_FRONTEND)
std::unique_ptr<Kernel> make_cudnn_attention(const KernelRequest& request) {
  if (!is_low_precision(request.outputs[0].dtype)) return nullptr;  // served by no build
  throw KernelRefused(ExitCode::device, kAttentionLacks);
}
std::unique_ptr<Kernel> make_cudnn_attention_backward(const KernelRequest& request) {
  return make_cudnn_attention(request);
}
#endif

std::span<const KernelRow> cuda_vendor_rows() {
  return kVendorRows;
}

}  // namespace dltrain

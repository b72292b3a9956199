// The plug-in's engine: its entry, which libdltrain_cuda.so exports and nothing else, and its
// kernels by cuBLASLt, cuDNN and NVRTC, which precede the engine's own. A row is proven if its op
// cases passed on a GPU (docs/gpu); tests/cuda_engine builds the plans of the cuDNN rows from
// descriptions of GPUs.
#include <vector>

#include "cuda/makers.h"
#include "cuda/tables.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/requests.h"
#include "device/engine.h"
#include "ops/kernel_refused.h"
#if defined(DLTRAIN_NCCL)
#include "cuda/vendor/nccl.h"
#endif

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

constexpr bool kVendorAccumulates = true, kOverwrites = false, kProven = true, kUnproven = false;

constinit const KernelRow kVendorRows[] = {
    {"matmul", "cuBLASLt", make_blas_matmul, kVendorAccumulates, kProven},
    {"matmul_gelu", "cuBLASLt", make_blas_matmul, kOverwrites, kProven},
    {"matmul_gelu_backward", "cuBLASLt", make_blas_matmul, kOverwrites, kProven},
    {"fp8_matmul", "cuBLASLt", make_blas_matmul, kVendorAccumulates, kUnproven},
    {"conv2d", "cuDNN", make_cudnn_conv2d, kOverwrites, kProven},
    {"conv2d_backward_input", "cuDNN", make_cudnn_conv2d_input, kVendorAccumulates, kProven},
    {"conv2d_backward_weight", "cuDNN", make_cudnn_conv2d_weight, kVendorAccumulates, kProven},
    {"recurrent_network", "cuDNN", make_cudnn_recurrent, kOverwrites, kProven,
     cudnn_recurrent_kept_bytes},
    {"recurrent_network_backward", "cuDNN", make_cudnn_recurrent_backward, kOverwrites, kProven},
    {"fused_elementwise", "NVRTC", make_nvrtc_fused, kOverwrites, kUnproven, nullptr,
     nvrtc_missing},
    {"attention", "cuDNN", make_cudnn_attention, kOverwrites, kProven, nullptr, attention_missing},
    {"attention_backward", "cuDNN", make_cudnn_attention_backward, kOverwrites, kProven, nullptr,
     attention_missing},
};

std::unique_ptr<Device> open_device(int index) {
  return std::make_unique<CudaDevice>(index);
}

const VendorCollectives* offered_collectives() {
#if defined(DLTRAIN_NCCL)
  return nccl_collectives();
#else
  return nullptr;
#endif
}

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

const Engine& cuda_engine() {
  static const std::vector<KernelRow> rows = [] {
    std::vector<KernelRow> all(std::begin(kVendorRows), std::end(kVendorRows));
    all.insert(all.end(), cuda_own_rows().begin(), cuda_own_rows().end());
    return all;
  }();
  static const Engine engine{.name = "cuda",
                             .kernels = rows.data(),
                             .kernel_count = rows.size(),
                             .device_count = cuda_device_count,
                             .problem = cuda_problem,
                             .open = open_device,
                             .collectives = offered_collectives(),
                             .libraries = cuda_libraries};
  return engine;
}

}  // namespace dltrain

extern "C" const dltrain::Engine* dltrain_engine(uint32_t abi) {
  using namespace dltrain;
  if (abi != kEngineAbi) return nullptr;
  return &cuda_engine();
}

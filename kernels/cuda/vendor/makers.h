// Makers of the kernels that call vendor libraries.
#pragma once

#include "ops/kernel.h"

namespace dltrain {

class CudaDevice;

// Returns the request's device, which is always one of this engine.
CudaDevice& cuda_device(const KernelRequest& request);

std::unique_ptr<Kernel> make_blas_matmul(const KernelRequest& request);
std::unique_ptr<Kernel> make_cudnn_conv2d(const KernelRequest& request);
std::unique_ptr<Kernel> make_cudnn_conv2d_input(const KernelRequest& request);
std::unique_ptr<Kernel> make_cudnn_conv2d_weight(const KernelRequest& request);
// recurrent_network; kept_bytes: KernelRow::kept_bytes.
std::unique_ptr<Kernel> make_cudnn_recurrent(const KernelRequest& request);
std::unique_ptr<Kernel> make_cudnn_recurrent_backward(const KernelRequest& request);
std::optional<int64_t> cudnn_recurrent_kept_bytes(const KernelRequest& request);
// Only with autotune, if it finds them to be faster than two steps.
std::unique_ptr<Kernel> make_nvrtc_fused(const KernelRequest& request);
// Refuse everything in builds without the cudnn-frontend headers (DLTRAIN_CUDNN_FRONTEND).
std::unique_ptr<Kernel> make_cudnn_attention(const KernelRequest& request);
std::unique_ptr<Kernel> make_cudnn_attention_backward(const KernelRequest& request);
std::string nvrtc_missing(Device* device);  // KernelRow::missing

}  // namespace dltrain

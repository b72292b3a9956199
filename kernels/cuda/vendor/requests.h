// Functions that the makers of kernels by vendor libraries share with their table.
#pragma once

#include "ops/kernel.h"

namespace dltrain {

class CudaDevice;

// Returns the request's device, which is always one of this engine.
CudaDevice& cuda_device(const KernelRequest& request);

std::optional<int64_t> cudnn_recurrent_kept_bytes(const KernelRequest& request);  // of KernelRow
std::string nvrtc_missing(Device* device);                                        // likewise

}  // namespace dltrain

// Queues average pooling, upsampling and adaptive max pooling over images [N, H, W, C]
// (lib/ops/image_maps.h says what the maps are). dtype: f32, f64, bf16 or f16.
#pragma once

#include "cuda/launch.h"
#include "tensor/dtype.h"

namespace dltrain {

// An AxisMap in device memory.
struct DeviceAxisMap {
  const int64_t *begin = nullptr, *index = nullptr;
  const double* weight = nullptr;
};

struct ImageMapCall {
  DType dtype = DType::f32;
  int64_t samples = 0, channels = 0;
  int64_t in[2] = {}, out[2] = {};  // height, width
  DeviceAxisMap map[2];
};

void launch_image_map(const ImageMapCall& call, const void* x, void* y, CudaStream stream);

void launch_adaptive_max_pool2d(const ImageMapCall& call, const void* x, void* y, int32_t* position,
                                CudaStream stream);
// The maps are the transposed ones: which windows an element stands in. `in` and `out` are those of
// the forward.
void launch_adaptive_max_pool2d_backward(const ImageMapCall& call, const void* dy,
                                         const int32_t* position, void* dx, CudaStream stream);

}  // namespace dltrain

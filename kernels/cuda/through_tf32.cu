// TF32 products (shared/through_tf32.h) on the GPU, where cuBLASLt and cuDNN do not serve them.
#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "cuda/tables.h"
#include "shared/through_tf32.h"

namespace dltrain {
namespace {

constexpr int kTf32Block = 256;

__global__ void tf32_kernel(const float* x, float* y, int64_t count) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kTf32Block;
  for (int64_t i = thread_index(); i < count; i += step) y[i] = to_tf32(x[i]);
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_through_tf32(const KernelRequest& request) {
  return make_through_tf32(request, cuda_engine(),
                           [](const float* x, float* y, int64_t count, Stream& stream) {
                             if (count == 0) return;
                             DLTRAIN_LAUNCH(tf32_kernel, stride_grid(count, kTf32Block), kTf32Block,
                                            stream.native(), x, y, count);
                           });
}

}  // namespace dltrain

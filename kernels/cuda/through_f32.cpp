// The fallback to f32 kernels (shared/through_f32.h) on the GPU.
#include "shared/through_f32.h"

#include "cuda/elementwise.h"
#include "cuda/makers.h"
#include "cuda/tables.h"

namespace dltrain {

std::unique_ptr<Kernel> make_cuda_through_f32(const KernelRequest& request) {
  return make_through_f32(
      request, cuda_engine(),
      [](DType from, DType to, const void* x, void* y, int64_t count, Stream& stream) {
        launch_cast(from, to, x, y, count, stream.native());
      });
}

}  // namespace dltrain

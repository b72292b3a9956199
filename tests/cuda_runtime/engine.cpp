#include "cuda_runtime/engine.h"

#include "cuda/makers.h"
#include "cuda/vendor/device.h"

namespace dltrain {

const Engine& fake_cuda_engine() {
  static const Engine engine{.name = "cuda",
                             .kernels = cuda_own_rows().data(),
                             .kernel_count = cuda_own_rows().size(),
                             .device_count = cuda_device_count,
                             .problem = cuda_problem,
                             .open = [](int index) -> std::unique_ptr<Device> {
                               return std::make_unique<CudaDevice>(index);
                             }};
  return engine;
}

}  // namespace dltrain

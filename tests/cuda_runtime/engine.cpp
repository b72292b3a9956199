#include "cuda_runtime/engine.h"

#include <vector>

#include "cuda/makers.h"
#include "cuda/tables.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/requests.h"

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

Engine fake_engine_with(std::vector<KernelRow>& rows) {
  rows.insert(rows.end(), cuda_own_rows().begin(), cuda_own_rows().end());
  Engine out = fake_cuda_engine();
  out.kernels = rows.data();
  out.kernel_count = rows.size();
  return out;
}

const Engine& fake_cudnn_engine() {
  static std::vector<KernelRow> rows{{.op = "recurrent_network",
                                      .variant = "cuDNN",
                                      .make = make_cudnn_recurrent,
                                      .kept_bytes = cudnn_recurrent_kept_bytes},
                                     {.op = "recurrent_network_backward",
                                      .variant = "cuDNN",
                                      .make = make_cudnn_recurrent_backward}};
  static const Engine engine = fake_engine_with(rows);
  return engine;
}

}  // namespace dltrain

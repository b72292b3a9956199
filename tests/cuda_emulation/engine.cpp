#include "cuda_emulation/engine.h"

#include "cuda/makers.h"
#include "shared/host_memory.h"

namespace dltrain {

const Engine& cuda_engine() {
  return emulated_cuda_engine();
}

const Engine& emulated_cuda_engine() {
  static const Engine engine{
      .name = "emulated cuda",
      .kernels = cuda_own_rows().data(),
      .kernel_count = cuda_own_rows().size(),
      .device_count = [] { return 1; },
      .open = [](int) { return make_host_device("cuda", "emulation", {}, false); }};
  return engine;
}

}  // namespace dltrain

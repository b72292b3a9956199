// Kernels whose blocks wait for one another: one launch in place of many. Included by .cu files
// only.
//
// Under the emulation (tests/cuda_emulation) such a kernel has one block, whose threads run in
// random order between any two barriers, so a missing grid_barrier() is found.
#pragma once

#include "cuda/device_code.cuh"

#if !defined(DLTRAIN_CUDA_EMULATION)
#include <cooperative_groups.h>

// One block on every multiprocessor; they may wait for one another in grid_barrier().
#define DLTRAIN_LAUNCH_COOPERATIVE(kernel, block, stream, ...) \
  ::dltrain::launch_cooperative((kernel), #kernel, (block), (stream), __VA_ARGS__)

namespace dltrain {

template <typename... Parameters, typename... Arguments>
void launch_cooperative(void (*kernel)(Parameters...), const char* name, unsigned block,
                        CudaStream stream, const Arguments&... arguments) {
  int device = 0, multiprocessors = 0;
  check_launch(static_cast<int>(cudaGetDevice(&device)), name);
  check_launch(static_cast<int>(cudaDeviceGetAttribute(&multiprocessors,
                                                       cudaDevAttrMultiProcessorCount, device)),
               name);
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(multiprocessors));
  config.blockDim = dim3(block);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &cooperative;
  config.numAttrs = 1;
  check_launch(
      static_cast<int>(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...)),
      name);
}

// Waits for all threads of a cooperative launch; what they have written before is visible after.
__device__ inline void grid_barrier() {
  cooperative_groups::this_grid().sync();
}

}  // namespace dltrain
#endif

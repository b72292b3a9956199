// conv2d_moments and conv2d_batch_norm on the CPU, for tests: no pass creates them for this engine.
#include "shared/conv2d_norms.h"

#include "cpu/engine.h"
#include "cpu/makers.h"

namespace dltrain {

MadeKernel make_conv2d_moments(const KernelRequest& request) {
  return make_two_step_moments(request, cpu_engine(), make_batch_moments);
}

MadeKernel make_conv2d_batch_norm(const KernelRequest& request) {
  return make_two_step_batch_norm(request, cpu_engine());
}

}  // namespace dltrain

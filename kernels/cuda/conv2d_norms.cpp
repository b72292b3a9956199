// conv2d_moments and conv2d_batch_norm as two steps, used by all runs without autotune.
#include "shared/conv2d_norms.h"

#include "cuda/makers.h"

namespace dltrain {

std::unique_ptr<Kernel> make_cuda_conv2d_moments(const KernelRequest& request) {
  return make_two_step_moments(request, cuda_engine(), make_cuda_batch_moments);
}

std::unique_ptr<Kernel> make_cuda_conv2d_batch_norm(const KernelRequest& request) {
  return make_two_step_batch_norm(request, cuda_engine());
}

}  // namespace dltrain

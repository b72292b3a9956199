// matmul_gelu and matmul_gelu_backward of this engine's parts.
#include "shared/matmul_gelu.h"

#include "cuda/makers.h"
#include "cuda/tables.h"

namespace dltrain {

std::unique_ptr<Kernel> make_cuda_matmul_gelu(const KernelRequest& request) {
  return make_matmul_gelu_of_parts(request, cuda_engine());
}
std::unique_ptr<Kernel> make_cuda_matmul_gelu_backward(const KernelRequest& request) {
  return make_matmul_gelu_backward_of_parts(request, cuda_engine());
}

}  // namespace dltrain

// matmul_gelu and matmul_gelu_backward of this engine's parts.
#include "shared/matmul_gelu.h"

#include "reference/engine.h"
#include "reference/makers.h"

namespace dltrain {

std::unique_ptr<Kernel> reference_matmul_gelu(const KernelRequest& request) {
  return make_matmul_gelu_of_parts(request, reference_engine());
}
std::unique_ptr<Kernel> reference_matmul_gelu_backward(const KernelRequest& request) {
  return make_matmul_gelu_backward_of_parts(request, reference_engine());
}

}  // namespace dltrain

// matmul_gelu and matmul_gelu_backward of this engine's parts.
#include "shared/matmul_gelu.h"

#include "cpu/engine.h"
#include "cpu/makers.h"

namespace dltrain {

std::unique_ptr<Kernel> make_matmul_gelu(const KernelRequest& request) {
  return make_matmul_gelu_of_parts(request, cpu_engine());
}
std::unique_ptr<Kernel> make_matmul_gelu_backward(const KernelRequest& request) {
  return make_matmul_gelu_backward_of_parts(request, cpu_engine());
}

}  // namespace dltrain

#include "cuda/vendor/check.h"

#include "base/error.h"
#include "cuda/launch.h"

namespace dltrain {

void check_cuda(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess) return;
  const auto exit_code = code == cudaErrorMemoryAllocation ? ExitCode::memory : ExitCode::device;
  fail(exit_code, "CUDA: {}: {} ({})", what, cudaGetErrorString(code), cudaGetErrorName(code));
}

void check_cublas(cublasStatus_t code, std::string_view what) {
  if (code == CUBLAS_STATUS_SUCCESS) return;
  fail(code == CUBLAS_STATUS_ALLOC_FAILED ? ExitCode::memory : ExitCode::device, "cuBLASLt: {}: {}",
       what, cublasLtGetStatusString(code));
}

void check_launch(int code, const char* kernel) {
  check_cuda(static_cast<cudaError_t>(code), kernel);
}

}  // namespace dltrain

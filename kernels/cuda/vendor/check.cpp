#include "cuda/vendor/check.h"

#include "cuda/launch.h"
#include "ops/kernel_refused.h"

namespace dltrain {
namespace {

// Returns advice for the user; empty if the vendor's text is sufficient.
const char* advice(cudaError_t code) {
  switch (code) {
    case cudaErrorECCUncorrectable:
    case cudaErrorContained:
    case cudaErrorHardwareStackError:
      return "; the GPU is faulty: nvidia-smi -q -d ECC,PAGE_RETIREMENT says more. The last "
             "checkpoint is whole: resume on another GPU";
    case cudaErrorNoKernelImageForDevice:
      return "; this build has no code for this GPU (CMAKE_CUDA_ARCHITECTURES)";
    case cudaErrorDevicesUnavailable:
      return "; another process has the GPU for itself (nvidia-smi shows which)";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
      return "; with CUDA_LAUNCH_BLOCKING=1 in the environment the run is not captured and the "
             "message names the op. The last checkpoint is whole";
    default:
      return "";
  }
}

}  // namespace

void check_cuda(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess) return;
  const auto exit_code = code == cudaErrorMemoryAllocation ? ExitCode::memory : ExitCode::device;
  fail(exit_code, "CUDA: {}: {} ({}){}", what, cudaGetErrorString(code), cudaGetErrorName(code),
       advice(code));
}

void check_cublas(cublasStatus_t code, std::string_view what) {
  if (code == CUBLAS_STATUS_SUCCESS) return;
  const std::string message = fmt::format("cuBLASLt: {}: {}", what, cublasLtGetStatusString(code));
  if (code == CUBLAS_STATUS_ALLOC_FAILED) throw Error(ExitCode::memory, message);
  throw KernelRefused(ExitCode::device, message);
}

EventHandle make_event(unsigned flags) {
  EventHandle event;
  check_cuda(cudaEventCreateWithFlags(event.out(), flags), "making an event");
  return event;
}

void check_launch(int code, const char* kernel) {
  check_cuda(static_cast<cudaError_t>(code), kernel);
}

}  // namespace dltrain

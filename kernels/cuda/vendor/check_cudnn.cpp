#include "cuda/vendor/cudnn_descriptor.h"
#include "ops/kernel_refused.h"

namespace dltrain {

std::string cudnn_text(cudnnStatus_t code) {
  char text[256] = "";
  cudnnGetLastErrorString(text, sizeof text);
  return fmt::format("{}{}{}", cudnnGetErrorString(code), *text == '\0' ? "" : " ", text);
}

void check_cudnn(cudnnStatus_t code, std::string_view what) {
  if (code == CUDNN_STATUS_SUCCESS) return;
  const std::string message = fmt::format("cuDNN: {}: {}", what, cudnn_text(code));
  if (code == CUDNN_STATUS_ALLOC_FAILED) throw Error(ExitCode::memory, message);
  throw KernelRefused(ExitCode::device, message);
}

}  // namespace dltrain

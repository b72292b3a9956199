#include "base/error.h"
#include "cuda/vendor/cudnn_descriptor.h"

namespace dltrain {

void check_cudnn(cudnnStatus_t code, std::string_view what) {
  if (code == CUDNN_STATUS_SUCCESS) return;
  char text[256] = "";
  cudnnGetLastErrorString(text, sizeof text);
  fail(code == CUDNN_STATUS_ALLOC_FAILED ? ExitCode::memory : ExitCode::device, "cuDNN: {}: {} {}",
       what, cudnnGetErrorString(code), text);
}

}  // namespace dltrain

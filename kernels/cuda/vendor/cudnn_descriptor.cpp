#include "cuda/vendor/cudnn_descriptor.h"

#include <algorithm>

#include <fmt/format.h>

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

cudnnDataType_t cudnn_type(DType dtype) {
  return dtype == DType::bf16  ? CUDNN_DATA_BFLOAT16
         : dtype == DType::f16 ? CUDNN_DATA_HALF
                               : CUDNN_DATA_FLOAT;
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnnBackendCreateDescriptor(type, descriptor_.out()), "making a descriptor");
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t count, const void* values) {
  check_cudnn(cudnnBackendSetAttribute(descriptor_, name, type, count, values),
              fmt::format("setting attribute {}", static_cast<int>(name)));
}

int64_t CudnnDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             int64_t most, void* values) const {
  int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(descriptor_, name, type, most, &count, values),
              fmt::format("reading attribute {}", static_cast<int>(name)));
  return std::min(count, most);
}

void CudnnDescriptor::finalize(std::string_view what) {
  check_cudnn(try_finalize(), what);
}
cudnnStatus_t CudnnDescriptor::try_finalize() {
  return cudnnBackendFinalize(descriptor_);
}

CudnnDescriptor describe_gpu(const std::string& json) {
  CudnnDescriptor description(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  description.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                  static_cast<int64_t>(json.size() + 1), json.c_str());
  description.finalize("reading the description of a GPU");
  return description;
}

}  // namespace dltrain

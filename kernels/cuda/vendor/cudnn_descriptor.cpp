#include "cuda/vendor/cudnn_descriptor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace dltrain {

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnnBackendCreateDescriptor(type, &descriptor_), "making a descriptor");
}
CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
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

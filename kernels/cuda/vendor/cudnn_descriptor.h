// Descriptors of cuDNN 9's graph API, through its C interface (cudnn_graph.h), which needs no
// third-party headers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cudnn_graph.h>

#include "cuda/vendor/check.h"
#include "tensor/dtype.h"

namespace dltrain {

// Returns cuDNN's name and text of the last error.
std::string cudnn_text(cudnnStatus_t code);
// Throws KernelRefused(device) "cuDNN: <what>: …" unless the call succeeded; Error(memory) if
// memory is lacking.
void check_cudnn(cudnnStatus_t code, std::string_view what);

// Returns cuDNN's name of f32, bf16 or f16.
cudnnDataType_t cudnn_type(DType dtype);

// One descriptor of the graph API, destroyed with the object. Move-only.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  // Sets a single value, whose C++ type is that of `type`.
  template <typename T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, 1, &value);
  }
  // Returns the number of values written to `values`, at most `most`.
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
              void* values) const;
  void finalize(std::string_view what);
  // For calls that may be refused (a plan that is not supported).
  cudnnStatus_t try_finalize();
  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  Handle<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor> descriptor_;
};

// The target of a plan: a GPU with a handle, or a description of one.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* description = nullptr;
};

// Creates a target from cuDNN's description (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
CudnnDescriptor describe_gpu(const std::string& json);

}  // namespace dltrain

// Convolution plans of cuDNN 9's graph API, through its C interface (cudnn_graph.h): a plan is an
// engine that cuDNN proposes for one convolution and that passes our rules. No third-party headers
// beyond the toolkit's, and a plan can be built for a GPU that is only described, which is how
// tests/cuda_engine checks every convolution without one.
//
// Rules: deterministic; sums in f32; for f32 no TF32 tensor cores and no narrower inputs; no FFT or
// Winograd, whose rounding errors are larger.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <cudnn_graph.h>

#include "tensor/dtype.h"

namespace dltrain {

// Throws Error(device) "cuDNN: <what>: …" unless the call succeeded.
void check_cudnn(cudnnStatus_t code, std::string_view what);

// One descriptor of the graph API, destroyed with the object. Move-only.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  ~CudnnDescriptor();

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  // Number of values written to `values`, at most `most`.
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
              void* values) const;
  void finalize(std::string_view what);
  // For calls that may be refused (a plan that is not supported).
  cudnnStatus_t try_finalize();
  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

enum class ConvolutionPass { forward, input, weight };

// Extents as lib/ops/conv2d.cpp names them; images are NHWC, weights [out, height, width, in].
struct ConvolutionProblem {
  ConvolutionPass pass = ConvolutionPass::forward;
  DType dtype = DType::f32;  // of all three tensors: f32, bf16 or f16
  int64_t samples = 0;
  int64_t in[2] = {}, out[2] = {};  // height, width
  int64_t in_channels = 0, out_channels = 0, groups = 1;
  int64_t kernel[2] = {}, stride[2] = {}, padding[2] = {}, dilation[2] = {};
};

// What a plan is for: a GPU with a handle, or a description of one.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* description = nullptr;
};

// A description as cuDNN writes it (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
CudnnDescriptor describe_gpu(const std::string& json);

struct ConvolutionPlan {
  // The tensors' identifiers in the variant pack.
  static constexpr int64_t kX = 1, kW = 2, kY = 3;

  CudnnDescriptor plan;
  size_t workspace_bytes = 0;
  std::string engine;  // "engine 1", for reports
};

// Nothing when no engine passes the rules.
std::optional<ConvolutionPlan> plan_convolution(const ConvolutionProblem& problem,
                                                const CudnnTarget& target);

}  // namespace dltrain

// The operations of cuDNN's graph API that are used here. Tensors have an id above 0, by which a
// variant pack binds them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/vendor/cudnn_descriptor.h"
#include "tensor/dtype.h"

namespace dltrain {

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

// Collects the parts of a graph: operations refer to the tensors' descriptors.
class CudnnOperations {
 public:
  // Adds a dense NHWC tensor of n images; cuDNN's order of extents is N, C, H, W. The reference is
  // valid for the lifetime of the object.
  const CudnnDescriptor& tensor(DType dtype, int64_t id, int64_t n, int64_t c, int64_t h,
                                int64_t w);
  // Add the problem's images: the input of the convolution, and its output.
  const CudnnDescriptor& input(const ConvolutionProblem& p, DType dtype, int64_t id) {
    return tensor(dtype, id, p.samples, p.in_channels, p.in[0], p.in[1]);
  }
  const CudnnDescriptor& weight(const ConvolutionProblem& p, int64_t id) {
    return tensor(p.dtype, id, p.out_channels, p.in_channels / p.groups, p.kernel[0], p.kernel[1]);
  }
  const CudnnDescriptor& output(const ConvolutionProblem& p, DType dtype, int64_t id) {
    return tensor(dtype, id, p.samples, p.out_channels, p.out[0], p.out[1]);
  }

  // Adds the problem's pass over x, w and y, which for gradients are those of the forward. Sums in
  // f32.
  void convolution(const ConvolutionProblem& p, const CudnnDescriptor& x, const CudnnDescriptor& w,
                   const CudnnDescriptor& y);
  // Returns the graph, which is independent of this object.
  CudnnDescriptor graph(const CudnnTarget& target) const;

 private:
  std::vector<std::unique_ptr<CudnnDescriptor>> tensors_;
  std::vector<CudnnDescriptor> operations_;
};

// The device memory of a plan's execution (cudnnBackendExecute). `workspace` may be nullptr if the
// plan needs none.
struct CudnnBinding {
  int64_t id;
  void* data;
};
CudnnDescriptor bind_cudnn(std::span<const CudnnBinding> tensors, void* workspace);

}  // namespace dltrain

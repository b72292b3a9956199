#include "cuda/vendor/cudnn_operations.h"

#include <utility>

namespace dltrain {
namespace {

cudnnDataType_t library_type_cudnn_operations(DType dtype) {
  return dtype == DType::bf16  ? CUDNN_DATA_BFLOAT16
         : dtype == DType::f16 ? CUDNN_DATA_HALF
                               : CUDNN_DATA_FLOAT;
}

constexpr cudnnDataType_t kCompute = CUDNN_DATA_FLOAT;

void attach(CudnnDescriptor& to, cudnnBackendAttributeName_t name, const CudnnDescriptor& part) {
  const cudnnBackendDescriptor_t raw = part.get();
  to.set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

CudnnDescriptor convolution_kind(const ConvolutionProblem& p) {
  CudnnDescriptor c(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const int64_t spatial = 2;
  c.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
  c.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &kCompute);
  c.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  c.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, p.padding);
  c.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, p.padding);
  c.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, p.dilation);
  c.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, p.stride);
  c.finalize("describing a convolution");
  return c;
}

// The attribute names of one pass.
struct PassNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
};

PassNames names(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    case ConvolutionPass::input:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case ConvolutionPass::weight:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
}

}  // namespace

const CudnnDescriptor& CudnnOperations::tensor(DType of, int64_t id, int64_t n, int64_t c,
                                               int64_t h, int64_t w) {
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t extents[] = {n, c, h, w}, strides[] = {h * w * c, 1, w * c, c}, alignment = 16;
  const cudnnDataType_t dtype = library_type_cudnn_operations(of);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &dtype);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, extents);
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  tensor.finalize("describing a tensor");
  tensors_.push_back(std::make_unique<CudnnDescriptor>(std::move(tensor)));
  return *tensors_.back();
}

void CudnnOperations::convolution(const ConvolutionProblem& p, const CudnnDescriptor& x,
                                  const CudnnDescriptor& w, const CudnnDescriptor& y) {
  const PassNames n = names(p.pass);
  const CudnnDescriptor kind = convolution_kind(p);
  const float alpha = 1, beta = 0;
  CudnnDescriptor operation(n.type);
  attach(operation, n.convolution, kind);
  attach(operation, n.x, x);
  attach(operation, n.w, w);
  attach(operation, n.y, y);
  operation.set(n.alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
  operation.set(n.beta, CUDNN_TYPE_FLOAT, 1, &beta);
  operation.finalize("describing a convolution's operands");
  operations_.push_back(std::move(operation));
}

CudnnDescriptor CudnnOperations::graph(const CudnnTarget& target) const {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const CudnnDescriptor& operation : operations_) raw.push_back(operation.get());
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<int64_t>(raw.size()), raw.data());
  if (target.handle != nullptr) {
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  }
  graph.finalize("building a graph");
  return graph;
}

CudnnDescriptor bind_cudnn(std::span<const CudnnBinding> tensors, void* workspace) {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  std::vector<int64_t> ids;
  std::vector<void*> data;
  for (const CudnnBinding& tensor : tensors) {
    ids.push_back(tensor.id);
    data.push_back(tensor.data);
  }
  const auto count = static_cast<int64_t>(tensors.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize("binding a plan");
  return pack;
}

}  // namespace dltrain

// cuDNN has plans for convolutions fused with parts of a batch norm, on GPUs that are only
// described. The engine uses none of them yet (docs/gpu/README.md). cuDNN compiles those in bf16
// itself and asks for a driver: stub/driver.cpp is loaded in its place.
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include "catch.h"
#include "cuda/vendor/cudnn_proposals.h"
#include "cuda_engine/described.h"

namespace dltrain {
namespace {

void attach(CudnnDescriptor& to, cudnnBackendAttributeName_t name, const CudnnDescriptor& part) {
  const cudnnBackendDescriptor_t raw = part.get();
  to.set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

// A convolution of ResNet-50 on 64 square images.
struct Convolution {
  const char* name;
  int64_t in, in_channels, out, out_channels, kernel, stride, padding;
};
constexpr Convolution kConvolutions[] = {{"3 by 3", 56, 64, 56, 64, 3, 1, 1},
                                         {"expand", 56, 64, 56, 256, 1, 1, 0}};

enum class Fused {
  statistics,            // y, and the sums of y and y² of each channel
  normalised,            // of relu(x·scale + bias), which exists nowhere
  normalised_statistics  // both
};

class FusedGraph {
 public:
  FusedGraph(const Convolution& c, cudnnDataType_t dtype, Fused fused) {
    const CudnnDescriptor x = image(dtype, c.in_channels, c.in, false),
                          y = image(dtype, c.out_channels, c.out, false),
                          w = tensor(dtype, {c.out_channels, c.in_channels, c.kernel, c.kernel});
    std::vector<CudnnDescriptor> operations;
    const CudnnDescriptor normalised = image(dtype, c.in_channels, c.in, true);
    if (fused != Fused::statistics) {
      const CudnnDescriptor scale = tensor(dtype, {1, c.in_channels, 1, 1}),
                            bias = tensor(dtype, {1, c.in_channels, 1, 1}),
                            scaled = image(CUDNN_DATA_FLOAT, c.in_channels, c.in, true),
                            moved = image(CUDNN_DATA_FLOAT, c.in_channels, c.in, true);
      operations.push_back(pointwise(CUDNN_POINTWISE_MUL, x, &scale, scaled));
      operations.push_back(pointwise(CUDNN_POINTWISE_ADD, scaled, &bias, moved));
      operations.push_back(pointwise(CUDNN_POINTWISE_RELU_FWD, moved, nullptr, normalised));
    }
    operations.push_back(convolution(c, fused == Fused::statistics ? x : normalised, w, y));
    if (fused != Fused::normalised) operations.push_back(statistics(c, y));
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const CudnnDescriptor& operation : operations) raw.push_back(operation.get());
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              static_cast<int64_t>(raw.size()), raw.data());
    graph.finalize("building a graph");
  }

  CudnnDescriptor graph{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};

 private:
  CudnnDescriptor tensor(cudnnDataType_t dtype, const std::vector<int64_t>& e,
                         bool is_virtual = false) {
    CudnnDescriptor out(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t strides[] = {e[1] * e[2] * e[3], 1, e[1] * e[3], e[1]}, alignment = 16;
    const int64_t id = ++tensors_;
    out.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &dtype);
    out.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, e.data());
    out.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    out.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    out.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    out.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    out.finalize("describing a tensor");
    return out;
  }
  CudnnDescriptor image(cudnnDataType_t dtype, int64_t channels, int64_t extent, bool is_virtual) {
    return tensor(dtype, {64, channels, extent, extent}, is_virtual);
  }
  static CudnnDescriptor pointwise(cudnnPointwiseMode_t mode, const CudnnDescriptor& a,
                                   const CudnnDescriptor* b, const CudnnDescriptor& y) {
    CudnnDescriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    kind.finalize("describing an element-wise operation");
    CudnnDescriptor out(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    attach(out, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    attach(out, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a);
    if (b != nullptr) attach(out, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    attach(out, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    out.finalize("describing an element-wise operation");
    return out;
  }
  static CudnnDescriptor convolution(const Convolution& c, const CudnnDescriptor& x,
                                     const CudnnDescriptor& w, const CudnnDescriptor& y) {
    CudnnDescriptor kind(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t axes = 2, padding[] = {c.padding, c.padding}, dilation[] = {1, 1},
                  stride[] = {c.stride, c.stride};
    kind.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
    kind.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    kind.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    kind.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding);
    kind.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding);
    kind.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    kind.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    kind.finalize("describing a convolution");
    CudnnDescriptor out(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    const float alpha = 1, beta = 0;
    attach(out, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, kind);
    attach(out, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    attach(out, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    attach(out, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    out.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &alpha);
    out.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &beta);
    out.finalize("describing a convolution's operands");
    return out;
  }
  CudnnDescriptor statistics(const Convolution& c, const CudnnDescriptor& y) {
    const CudnnDescriptor sum = tensor(CUDNN_DATA_FLOAT, {1, c.out_channels, 1, 1}),
                          squares = tensor(CUDNN_DATA_FLOAT, {1, c.out_channels, 1, 1});
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    CudnnDescriptor out(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    out.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    out.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    attach(out, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
    attach(out, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
    attach(out, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
    out.finalize("describing sums");
    return out;
  }

  int64_t tensors_ = 0;
};

bool has_plan(const CudnnDescriptor& gpu, const Convolution& c, cudnnDataType_t dtype,
              Fused fused) {
  FusedGraph fusion(c, dtype, fused);
  const CudnnTarget target{.description = &gpu};
  return CudnnProposals(std::move(fusion.graph), DType::bf16, target).build_first().has_value();
}

TEST_CASE("convolutions with the sums of the batch norm after them have deterministic plans") {
  REQUIRE(dlopen(DLTRAIN_STUB_DRIVER, RTLD_NOW | RTLD_GLOBAL) != nullptr);
  for (const char* gpu : {"a100", "h200"}) {
    const CudnnDescriptor description = describe_gpu(gpu_description(gpu));
    for (const Convolution& c : kConvolutions) {
      for (const cudnnDataType_t dtype : {CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF}) {
        for (const Fused fused : {Fused::statistics, Fused::normalised_statistics}) {
          INFO(gpu << ", " << c.name << ", dtype " << dtype << ", fusion "
                   << static_cast<int>(fused));
          CHECK(has_plan(description, c, dtype, fused));
        }
      }
    }
  }
}

}  // namespace
}  // namespace dltrain

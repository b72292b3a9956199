#include "cuda/vendor/cudnn_plan.h"

namespace dltrain {

using namespace cudnn_ids;

CudnnProposals propose_convolution(const ConvolutionProblem& p, const CudnnTarget& target) {
  CudnnOperations operations;
  operations.convolution(p, operations.input(p, p.dtype, kX), operations.weight(p, kW),
                         operations.output(p, p.dtype, kY));
  return {operations.graph(target), p.dtype, target};
}

CudnnProposals propose_convolution_sums(const ConvolutionProblem& p, const CudnnTarget& target) {
  CudnnOperations operations;
  const CudnnDescriptor& y = operations.output(p, p.dtype, kY);
  operations.convolution(p, operations.input(p, p.dtype, kX), operations.weight(p, kW), y);
  operations.sums(y, operations.channels(kSum, p.out_channels),
                  operations.channels(kSquares, p.out_channels));
  return {operations.graph(target), p.dtype, target};
}

CudnnProposals propose_convolution_norm(const ConvolutionProblem& p, const NormEnding& ending,
                                        const CudnnTarget& target) {
  CudnnOperations operations;
  const auto between = [&]() -> const CudnnDescriptor& {
    return operations.output(p, DType::f32, 0);
  };
  const CudnnDescriptor& y = operations.output(p, p.dtype, kY);
  const CudnnDescriptor& sums = between();
  operations.convolution(p, operations.input(p, p.dtype, kX), operations.weight(p, kW), sums);
  const CudnnDescriptor& scaled = between();
  operations.pointwise(CUDNN_POINTWISE_MUL, sums, &operations.channels(kScale, p.out_channels),
                       scaled);
  const CudnnDescriptor& shifted = ending.residual || ending.relu ? between() : y;
  operations.pointwise(CUDNN_POINTWISE_ADD, scaled, &operations.channels(kShift, p.out_channels),
                       shifted);
  const CudnnDescriptor* last = &shifted;
  if (ending.residual) {
    const CudnnDescriptor& added = ending.relu ? between() : y;
    operations.pointwise(CUDNN_POINTWISE_ADD, *last, &operations.output(p, p.dtype, kResidual),
                         added);
    last = &added;
  }
  if (ending.relu) operations.pointwise(CUDNN_POINTWISE_RELU_FWD, *last, nullptr, y);
  return {operations.graph(target), p.dtype, target};
}

CudnnDescriptor bind_convolution(void* x, void* w, void* y, void* workspace) {
  const CudnnBinding tensors[] = {{kX, x}, {kW, w}, {kY, y}};
  return bind_cudnn(tensors, workspace);
}

}  // namespace dltrain

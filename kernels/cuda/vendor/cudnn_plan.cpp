#include "cuda/vendor/cudnn_plan.h"

namespace dltrain {

using namespace cudnn_ids;

CudnnProposals propose_convolution(const ConvolutionProblem& p, const CudnnTarget& target) {
  CudnnOperations operations;
  operations.convolution(p, operations.input(p, p.dtype, kX), operations.weight(p, kW),
                         operations.output(p, p.dtype, kY));
  return {operations.graph(target), p.dtype, target};
}

CudnnDescriptor bind_convolution(void* x, void* w, void* y, void* workspace) {
  const CudnnBinding tensors[] = {{kX, x}, {kW, w}, {kY, y}};
  return bind_cudnn(tensors, workspace);
}

}  // namespace dltrain

// Queues sums and maxima over axes, in an order that depends on shapes alone (no atomics).
#pragma once

#include "cuda/launch.h"
#include "cuda/strided.h"
#include "tensor/dtype.h"

namespace dltrain {

// x is [outer, reduced, inner], y is [outer, inner]; or, when the reduced axes are not neighbours,
// `strided` is set, y has `outer` elements and the layouts tell where x's elements lie.
struct ReduceCall {
  DType dtype = DType::f32;  // of x, floating; y has its accumulation dtype
  bool maximum = false;      // else a sum, times `scale`
  double scale = 1;
  bool accumulate = false;
  int64_t outer = 1, reduced = 1, inner = 1;
  bool strided = false;
  StridedLayout kept = {}, gone = {};  // stride[0] is that of x
};

// Long reductions are cut into chunks whose results lie in the workspace until the second pass.
int64_t reduce_chunks(const ReduceCall& call);
// Of the dtype of y.
inline int64_t reduce_workspace_elements(const ReduceCall& call) {
  const int64_t chunks = reduce_chunks(call);
  return chunks == 1 ? 0 : chunks * call.outer * call.inner;
}

void launch_reduce(const ReduceCall& call, const void* x, void* y, void* workspace,
                   CudaStream stream);

}  // namespace dltrain

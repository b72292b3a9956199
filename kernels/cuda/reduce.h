// Queues sums and maxima over axes, in an order that depends on shapes alone (no atomics).
#pragma once

#include "cuda/launch.h"
#include "cuda/strided.h"
#include "tensor/dtype.h"

namespace dltrain {

// x is [outer, reduced, inner], y is [outer, inner]. If the reduced axes are not adjacent,
// `strided` is set, y has `outer` elements and the layouts describe x's elements.
struct ReduceCall {
  DType dtype = DType::f32;  // of x, floating; y has its accumulation dtype
  bool maximum = false;      // else a sum, times `scale`
  double scale = 1;
  bool accumulate = false;
  int64_t outer = 1, reduced = 1, inner = 1;
  bool strided = false;
  StridedLayout kept = {}, gone = {};  // stride[0] is that of x
};

// Returns the number of chunks, whose results in the workspace a second pass reduces.
int64_t reduce_chunks(const ReduceCall& call);
// Returns the number of elements, of the dtype of y, in the workspace.
inline int64_t reduce_workspace_elements(const ReduceCall& call) {
  const int64_t chunks = reduce_chunks(call);
  return chunks == 1 ? 0 : chunks * call.outer * call.inner;
}

void launch_reduce(const ReduceCall& call, const void* x, void* y, void* workspace,
                   CudaStream stream);

}  // namespace dltrain

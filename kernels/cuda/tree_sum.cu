#include "cuda/device_code.cuh"
#include "cuda/tree_sum.h"

namespace dltrain {
namespace {

constexpr int kBlock = 256;

template <typename T>
__global__ void tree_sum_kernel(TreeSumCall call, const StepState* state, void* const* addresses,
                                const int64_t* counts) {
  const int64_t a = state->in.sample_offset / call.micro_batch % call.micro_steps;
  const bool last = a + 1 == call.micro_steps;
  int64_t keep = 0;  // the first level without a partner
  while (keep < call.levels && (a >> keep & 1) != 0) ++keep;
  void* const* rows = addresses + static_cast<int64_t>(blockIdx.x) * (1 + call.levels);
  T* x = static_cast<T*>(rows[0]);
  for (int64_t i = threadIdx.x; i < counts[blockIdx.x]; i += kBlock) {
    T sum = x[i];
    for (int64_t level = 0; level < (last ? call.levels : keep); ++level) {
      if ((a >> level & 1) != 0) sum = static_cast<const T*>(rows[1 + level])[i] + sum;
    }
    x[i] = sum;
    if (!last) static_cast<T*>(rows[1 + keep])[i] = sum;
  }
}

}  // namespace

void launch_tree_sum(const TreeSumCall& call, const StepState* state, void* const* addresses,
                     const int64_t* counts, CudaStream stream) {
  if (call.chunks == 0) return;
  const auto grid = static_cast<unsigned>(call.chunks);
  if (call.dtype == DType::f64) {
    DLTRAIN_LAUNCH(tree_sum_kernel<double>, grid, kBlock, stream, call, state, addresses, counts);
  } else {
    DLTRAIN_LAUNCH(tree_sum_kernel<float>, grid, kBlock, stream, call, state, addresses, counts);
  }
}

}  // namespace dltrain

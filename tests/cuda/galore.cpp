#include "cuda_emulation/engine.h"
#include "ops/projections.h"

using namespace dltrain;

TEST_CASE("the CUDA kernel of projections finds singular vectors that are known") {
  check_projections(emulated_cuda_engine());
  check_low_rank(emulated_cuda_engine());
  check_subspace_iteration(emulated_cuda_engine());
}

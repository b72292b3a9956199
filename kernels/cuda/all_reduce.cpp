// all_reduce on GPUs. The groups of this version (Gloo) work in host memory and cannot be recorded
// into a CUDA graph, so several ranks on GPUs are refused when the plan is made, before step 1.
#include "base/error.h"
#include "cuda/makers.h"
#include "shared/common_kernels.h"

namespace dltrain {
namespace {

void refuse_ranks(const KernelRequest& request) {
  if (request.collectives == nullptr || request.collectives->size() == 1) return;
  fail(ExitCode::usage,
       "{} ranks on GPUs: this version of dltrain has no GPU collectives; use one rank, or "
       "'device: cpu'",
       request.collectives->size());
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_all_reduce_begin(const KernelRequest& request) {
  refuse_ranks(request);
  return make_all_reduce_begin(request);
}

std::unique_ptr<Kernel> make_cuda_all_reduce_end(const KernelRequest& request) {
  refuse_ranks(request);
  return make_all_reduce_end(request);
}

}  // namespace dltrain

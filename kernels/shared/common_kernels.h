// Kernels that are the same on every backend: they only pass the caller's addresses on.
#pragma once

#include "ops/kernel.h"

namespace dltrain {

// reshape: the output is the input's memory, so there is nothing to do.
std::unique_ptr<Kernel> make_reshape(const KernelRequest& request);

// all_reduce_begin and all_reduce_end (lib/ops/collective.cpp) through request.collectives, in
// stream order. With one rank (no collectives) both do nothing. Serve every dtype that the group
// reduces.
std::unique_ptr<Kernel> make_all_reduce_begin(const KernelRequest& request);
std::unique_ptr<Kernel> make_all_reduce_end(const KernelRequest& request);

}  // namespace dltrain

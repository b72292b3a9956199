// recurrent_network and its backward (lib/ops/recurrent_network.cpp) composed of the engine's
// kernels of matmul, recurrent, slice and reduce. The forward keeps gates and cells of `recurrent`.
// Every engine has these rows, so that it can run the op; passes create it only for engines with a
// better kernel.
#pragma once

#include "device/engine.h"
#include "ops/kernel.h"

namespace dltrain {

// Serve every dtype that the parts serve. Throw Error(internal) if 0 < `kept_bytes` <
// parts_kept_bytes().
std::unique_ptr<Kernel> make_recurrent_of_parts(const KernelRequest& request, const Engine& engine);
std::unique_ptr<Kernel> make_recurrent_backward_of_parts(const KernelRequest& request,
                                                         const Engine& engine);

// Returns the bytes that the forward keeps; 0 for rnn. `request`: of the forward.
int64_t parts_kept_bytes(const KernelRequest& request);

}  // namespace dltrain

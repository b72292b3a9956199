// recurrent_network and its backward (lib/ops/recurrent_network.cpp) by the engine's kernels of
// what they stand for: matmul, recurrent, slice, reduce. What the forward keeps are gates and cells
// of `recurrent`. Every engine has these rows, so that the op means something on each; graphs have
// the op only where an engine has a better kernel.
#pragma once

#include "device/engine.h"
#include "ops/kernel.h"

namespace dltrain {

// Serve every dtype that the parts serve. Throw Error(internal) where `kept_bytes` is not 0 and
// less than parts_kept_bytes().
std::unique_ptr<Kernel> make_recurrent_of_parts(const KernelRequest& request, const Engine& engine);
std::unique_ptr<Kernel> make_recurrent_backward_of_parts(const KernelRequest& request,
                                                         const Engine& engine);

// What the forward wants to keep; 0 for rnn. `request`: of the forward.
int64_t parts_kept_bytes(const KernelRequest& request);

}  // namespace dltrain

// TF32 products (attribute `math`) by an engine's f32 kernels: rounds both factors into the
// workspace, then runs the f32 kernel on them, so that only the factors are rounded. For engines
// without tensor cores, and for ops and shapes that the vendor's libraries do not serve.
#pragma once

#include "device/engine.h"
#include "ops/kernel.h"

namespace dltrain {

// Queues y[i] = to_tf32(x[i]) (tensor/low_precision.h).
using RoundFunction = void (*)(const float* x, float* y, int64_t count, Stream& stream);

// For ops whose inputs 0 and 1 are the factors. Returns nullptr for products that are not TF32's or
// not of f32, and for those that add to an output where `engine` has no f32 kernel that does.
std::unique_ptr<Kernel> make_through_tf32(const KernelRequest& request, const Engine& engine,
                                          RoundFunction round);

}  // namespace dltrain

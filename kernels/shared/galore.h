// The kernels of galore_projection and step_view for engines in host memory (lib/ops/galore.cpp).
#pragma once

#include <memory>

#include "ops/kernel.h"

namespace dltrain {

// For gradients and projections in f32 or f64; nullptr for others. They allocate memory in updates
// that compute a projection.
std::unique_ptr<Kernel> make_galore_projection(const KernelRequest& request);

std::unique_ptr<Kernel> make_step_view(const KernelRequest& request);

}  // namespace dltrain

// Copies the weight of a convolution from OHWI to a layout that oneDNN computes with, before every
// convolution. oneDNN's own reorders of these layouts were measured at only 5 to 20 GB/s.
#pragma once

#include <functional>

#include <oneapi/dnnl/dnnl.hpp>

#include "tensor/shape.h"

namespace dltrain {

// Copies a weight with all threads. `to` has the bytes of the layout; padding is set to zero.
using WeightReorder = std::function<void(const void* weight, void* to)>;

// Returns the copy from `weight`, an OHWI tensor in f32 or bf16 without groups, to `layout`, or
// nullptr for unknown layouts and processors without AVX-512; use oneDNN's reorder then.
WeightReorder find_weight_reorder(const TensorSpec& weight, const dnnl::memory::desc& layout);

}  // namespace dltrain

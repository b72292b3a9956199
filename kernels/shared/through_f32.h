// Any op on bf16 or f16 tensors by the engine's kernel for f32: inputs are widened into the
// workspace, the f32 kernel runs, and results are rounded. A path of compatibility for ops and
// formats without a kernel of their own: correct, at the price of the conversions.
#pragma once

#include "device/engine.h"
#include "ops/kernel.h"

namespace dltrain {

// Queues y = x in another dtype, between f32 and bf16 or f16.
using ConvertFunction = void (*)(DType from, DType to, const void* x, void* y, int64_t count,
                                 Stream& stream);

// nullptr where nothing is bf16 or f16, or `engine` has no kernel for f32, or outputs of 16 bits
// were to be added to.
std::unique_ptr<Kernel> make_through_f32(const KernelRequest& request, const Engine& engine,
                                         ConvertFunction convert);

// The rows, and after them for every op among them one with the maker `through_f32`.
std::vector<KernelRow> with_through_f32(std::span<const KernelRow> rows, KernelMaker through_f32,
                                        bool proven);

}  // namespace dltrain

// Runs any op on bf16 or f16 tensors by the engine's f32 kernel: widens inputs into the workspace,
// runs the f32 kernel and rounds the results. A fallback for ops and formats without a kernel of
// their own, slower by the conversions.
#pragma once

#include "device/engine.h"
#include "ops/kernel.h"

namespace dltrain {

// Queues y = x in another dtype, between f32 and bf16 or f16.
using ConvertFunction = void (*)(DType from, DType to, const void* x, void* y, int64_t count,
                                 Stream& stream);

// Returns nullptr if no tensor is bf16 or f16, if `engine` has no f32 kernel, or if the request
// accumulates to 16-bit outputs.
std::unique_ptr<Kernel> make_through_f32(const KernelRequest& request, const Engine& engine,
                                         ConvertFunction convert);

// Returns `rows`, followed by a row with the maker `through_f32` for every op among them.
std::vector<KernelRow> with_through_f32(std::span<const KernelRow> rows, KernelMaker through_f32,
                                        bool proven);

}  // namespace dltrain

// Shared by the kernel tables of all backends: rows of element-wise ops, and kernels that only
// forward addresses.
#pragma once

#include <span>
#include <vector>

#include "ops/kernel.h"

namespace dltrain {

// Returns a row like `form` for every element-wise op, one like `update` for every update by an
// optimizer whose elements are independent, and rows of reshape and of the messages between ranks
// (lib/ops/collective.cpp, sharded.cpp, transfer.cpp, expert_places.cpp), followed by `rows`.
// Messages go through request.collectives, in stream order, on any device.
std::vector<KernelRow> with_common_rows(const KernelRow& form, const KernelRow& update,
                                        std::span<const KernelRow> rows,
                                        bool messages_proven = true);

// gradient_norm_of, for device memory that the host can access.
std::unique_ptr<Kernel> make_gradient_norm_of(const KernelRequest& request);

}  // namespace dltrain

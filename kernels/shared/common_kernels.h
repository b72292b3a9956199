// Shared by the kernel tables of all backends: rows of element-wise ops, and kernels that only
// forward addresses.
#pragma once

#include <span>
#include <vector>

#include "ops/kernel.h"

namespace dltrain {

// Returns a row like `form` for every element-wise op and one like `update` for every update by an
// optimizer whose elements are independent, followed by `rows`.
std::vector<KernelRow> with_elementwise(const KernelRow& form, const KernelRow& update,
                                        std::span<const KernelRow> rows);

// reshape: the output is the input's memory, so there is nothing to do.
std::unique_ptr<Kernel> make_reshape(const KernelRequest& request);

// all_reduce_begin and all_reduce_end (lib/ops/collective.cpp) through request.collectives, in
// stream order. With one rank (no collectives) both do nothing. Serve every dtype that the group
// reduces.
std::unique_ptr<Kernel> make_all_reduce_begin(const KernelRequest& request);
std::unique_ptr<Kernel> make_all_reduce_end(const KernelRequest& request);

// The ops of lib/ops/sharded.cpp, transfer.cpp and expert_places.cpp, likewise; make_wait serves
// the ends. gradient_norm_of needs device memory that the host can access.
std::unique_ptr<Kernel> make_reduce_scatter_begin(const KernelRequest& request);
std::unique_ptr<Kernel> make_all_gather_begin(const KernelRequest& request);
std::unique_ptr<Kernel> make_all_to_all_begin(const KernelRequest& request);
std::unique_ptr<Kernel> make_send_begin(const KernelRequest& request);
std::unique_ptr<Kernel> make_receive_begin(const KernelRequest& request);
std::unique_ptr<Kernel> make_wait(const KernelRequest& request);
std::unique_ptr<Kernel> make_gradient_norm_of(const KernelRequest& request);

}  // namespace dltrain

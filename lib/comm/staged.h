// Executes collectives between GPUs through pinned host memory: copy to the host, the same
// operation of a group over host memory, copy to the device, all in the order of one stream. The
// stream calls the host part, so the thread that queues operations never waits.
//
// For ranks that share a GPU or have no NCCL. Sums are those of comm/reduce.h, as on CPUs.
#pragma once

#include <memory>

#include "device/collective_backend.h"

namespace dltrain {

// `host`: a group of the same ranks for the exclusive use of the backend. Memory: one pinned buffer
// for the largest operation's input and output, allocated in the first steps.
std::unique_ptr<CollectiveBackend> make_staged_backend(Device& device,
                                                       std::unique_ptr<Collectives> host);

}  // namespace dltrain

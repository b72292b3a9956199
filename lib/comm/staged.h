// Carries collectives between GPUs through pinned host memory: device → host, the same operation of
// a group over host memory, host → device, all in the order of one stream. The host part is
// called by the stream, so the thread that queues never waits.
//
// For ranks that share a GPU or have no NCCL; every sum is that of comm/reduce.h, as on CPUs.
#pragma once

#include <memory>

#include "device/carrier.h"

namespace dltrain {

// `host`: a group of the same ranks, used for nothing else. Memory: one pinned buffer of the
// largest operation's input and output, taken in the first steps.
std::unique_ptr<Carrier> make_staged_carrier(Device& device, std::unique_ptr<Collectives> host);

}  // namespace dltrain

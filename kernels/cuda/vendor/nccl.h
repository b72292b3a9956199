// NCCL, opened only for several ranks on GPUs, so that everything else works without libnccl.
//
// Operations are queued on the stream of the group (comm/stream_collectives.h) and not captured. A
// thread of the backend polls for NCCL's asynchronous errors (ncclCommGetAsyncError) every
// kPollEvery; it then aborts the communicator, so that the stream completes and the host gets the
// error. The watch of ranks (comm/watch.h) detects lost peers that NCCL does not notice, and
// operations that do not end, by events before and after each operation.
//
// ncclCommSplit creates groups of some ranks.
//
// Sums are in the order of NCCL's rings and trees, with bf16 and f16 rounded at every hop, and so
// differ from those of comm/reduce.h. With the same GPU layout and NCCL version they are
// reproducible.
#pragma once

#include <chrono>

#include "device/collective_backend.h"

namespace dltrain {

inline constexpr std::chrono::milliseconds kPollEvery{100};

// Returns the engine's collectives; their problem() reports a missing or too old library.
const VendorCollectives* nccl_collectives();

}  // namespace dltrain

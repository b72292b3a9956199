// NCCL, opened when ranks meet on GPUs: one rank, and machines without libnccl, run what does not
// need it.
//
// Operations are queued on the stream of the group (comm/stream_collectives.h) and not captured. A
// thread of the carrier looks for errors that NCCL meets by itself (ncclCommGetAsyncError) every
// kPollEvery; it then aborts the communicator, so that the stream is done and the host learns of
// it. Peers that are lost without NCCL noticing, and operations that never end, are found by the
// watch of ranks: an event before and behind each operation says how far the GPU is.
//
// Groups of some ranks are split off by ncclCommSplit.
//
// Sums are in the order of NCCL's rings and trees, and of bf16 and f16 rounded at every hop: not
// those of comm/reduce.h. For one layout of GPUs and one version they are the same in every run.
#pragma once

#include <chrono>

#include "device/carrier.h"

namespace dltrain {

inline constexpr std::chrono::milliseconds kPollEvery{100};

// What the engine offers; its problem() says where the library is missing or too old.
const VendorCollectives* nccl_collectives();

}  // namespace dltrain

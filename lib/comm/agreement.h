// One choice for all ranks, by the store.
#pragma once

#include <chrono>

#include "comm/store.h"
#include "device/device.h"

namespace dltrain {

// What `make` gives on rank 0, on every rank; for a key that was agreed on before, what it gave
// then. The other ranks wait for rank 0 at most `timeout`, then throw Error(rank). At most
// kStoreMaxValue bytes. `store` outlives the result.
Agreement agree_through(StoreClient& store, int rank, std::chrono::milliseconds timeout);

}  // namespace dltrain

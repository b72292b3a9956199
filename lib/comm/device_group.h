// How the ranks of a run meet over the memory of their GPUs: by the vendor's library (NCCL) where
// every rank has a GPU of its own and the library, otherwise through host memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/observer.h"
#include "comm/stream_collectives.h"
#include "device/engine.h"

namespace dltrain {

enum class CollectiveChoice : uint8_t { automatic, nccl, staged };

struct CarrierChoice {
  bool on_gpus = false;  // the ranks compute on GPUs; otherwise there is nothing to join
  bool vendor = false;   // NCCL, else host memory
  std::string note;      // one line for the log: what was chosen
  std::string warning;   // why it is not NCCL, where nobody asked for that; empty: none
};

// Asks all ranks what they have; all must call it, over their group in host memory, and get the
// same answer. `fixed_order`: sums must be those of comm/reduce.h (training.reduction: fixed),
// which NCCL's are not. Throws, on all ranks alike: Error(device) when some ranks have a GPU and
// others have none, Error(usage) when NCCL is wanted and cannot be used.
CarrierChoice choose_carrier(Collectives& host, const Engine& engine, const Device& device,
                             CollectiveChoice wanted, bool fixed_order);

struct DeviceGroupOptions {
  // Makes another group of the same ranks over host memory; all ranks call it together.
  std::function<std::unique_ptr<Collectives>()> make_host_group;
  CollectiveObserver* observer = nullptr;
};

// Joins `group` as chosen; all ranks must call it. Throws Error(device) or Error(rank).
void join_device_group(StreamCollectives& group, const CarrierChoice& choice, Collectives& host,
                       const Engine& engine, Device& device, const DeviceGroupOptions& options);

}  // namespace dltrain

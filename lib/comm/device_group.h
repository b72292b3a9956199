// Selects and makes the group of the ranks over GPU memory: by the vendor's library (NCCL) if every
// rank has its own GPU and the library, otherwise through host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/stream_collectives.h"
#include "device/engine.h"

namespace dltrain {

enum class CollectiveBackendKind : uint8_t { automatic, nccl, staged };

struct CollectiveBackendChoice {
  bool on_gpus = false;  // false: the ranks compute on CPUs, and no group is made
  bool vendor = false;   // true: NCCL, false: host memory
  std::string note;      // one line for the log
  std::string warning;   // why NCCL is not used, if nothing else was requested; may be empty
};

// Compares the devices of all ranks. All ranks call it, over their group in host memory, and get
// the same answer. `fixed_order`: the order of sums must be that of comm/reduce.h
// (training.reduction: fixed), which NCCL does not guarantee. Throws on all ranks: Error(device) if
// only some ranks have a GPU, Error(usage) if NCCL is requested and cannot be used.
CollectiveBackendChoice choose_collective_backend(Collectives& host, const Engine& engine,
                                                  const Device& device,
                                                  CollectiveBackendKind wanted, bool fixed_order);

// Joins `group` with the chosen backend; all ranks must call it. `host` is a HostCollectives;
// `watch` may be nullptr. Throws Error(device) or Error(rank).
void join_device_group(StreamCollectives& group, const CollectiveBackendChoice& choice,
                       Collectives& host, const Engine& engine, Device& device,
                       RankWatch* watch = nullptr);

// Makes a backend that executes collectives through pinned host memory: copy to the host, the same
// operation of a group over host memory, copy to the device, all in the order of one stream. The
// stream calls the host part, so the thread that queues operations never waits. It serves ranks
// that share a GPU or have no NCCL. Sums are those of comm/reduce.h, as on CPUs.
//
// `host`: a group of the same ranks for the exclusive use of the backend. Memory: one pinned buffer
// for the largest operation's input and output, allocated in the first steps.
std::unique_ptr<CollectiveBackend> make_staged_backend(Device& device,
                                                       std::unique_ptr<Collectives> host);

}  // namespace dltrain

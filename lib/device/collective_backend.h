// Executes the operations of StreamCollectives (comm/stream_collectives.h) between GPUs: through
// host memory (comm/device_group.h), or with a library of the vendor that an engine offers (NCCL).
//
// A backend is used by one thread, with the same order of operations on all ranks; failure(),
// progress() and abort() can be called from any thread at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/collectives.h"
#include "device/device.h"

namespace dltrain {

struct CollectiveFailure {
  CollectiveCall call;  // the operation that failed, or one that was in progress
  std::string reason;   // "rank 0 of 2: …"
};

// The numbers of queued operations that the device has started and completed. They are equal if it
// executes none.
struct DeviceProgress {
  uint64_t begun = 0, done = 0;
};

class CollectiveBackend {
 public:
  virtual ~CollectiveBackend() = default;

  // Queues the operation on `stream`, always the same one, and returns. The buffers are in the
  // device's memory. After a failure it may do nothing. Allocates only for operations that are
  // larger than the earlier ones.
  virtual void queue(const CollectiveCall& call, Stream& stream) = 0;
  // The first failure of a queued operation.
  virtual std::optional<CollectiveFailure> failure() = 0;
  // Does not wait for the device; the numbers may be slightly old.
  virtual DeviceProgress progress() = 0;
  // Ends the operations in progress on this rank, so that its streams complete soon. The group can
  // no longer be used.
  virtual void abort() = 0;
  // Makes a backend for some of the ranks (see Collectives::split), before anything is queued. All
  // ranks call it, and it blocks until they have. The new backend must be destroyed before this
  // one. Throws Error(device) or Error(rank).
  virtual std::unique_ptr<CollectiveBackend> split(std::span<const int> ranks) = 0;
};

// The vendor's library, as an engine offers it (Engine::collectives).
struct VendorCollectives {
  // Returns "NCCL 2.28.9"; opens the library.
  std::string (*library)() = nullptr;
  // Returns in one line why the library cannot be used (not installed, too old); empty if it can.
  std::string (*problem)() = nullptr;
  // Makes the identifier of a new group on one rank, which sends it to the others. Throws
  // Error(device).
  std::vector<std::byte> (*make_id)() = nullptr;
  // Blocks until all `size` ranks have joined. Throws Error(device). The device outlives the
  // backend.
  std::unique_ptr<CollectiveBackend> (*join)(Device& device, std::span<const std::byte> id,
                                             int rank, int size) = nullptr;
};

inline constexpr size_t kMaxVendorIdBytes = 256;

}  // namespace dltrain

// What carries the operations of StreamCollectives (comm/stream_collectives.h) between GPUs: host
// memory (comm/staged.h), or a library of the vendor that an engine offers (NCCL).
//
// A carrier is used by one thread, in the same order of operations on all ranks; failure(),
// progress() and abandon() may come from any thread at any time.
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

struct CarrierFailure {
  CollectiveCall call;  // that failed, or one that was under way
  std::string reason;   // "rank 0 of 2: …"
};

// How far a device is with the operations that were queued, counted from 1: it has come to so many,
// and so many are over. Equal when it is in none.
struct CarrierProgress {
  uint64_t begun = 0, done = 0;
};

class Carrier {
 public:
  virtual ~Carrier() = default;

  // "NCCL 2.28.9", "host memory"
  virtual std::string name() const = 0;
  // Queues the operation on `stream`, always the same one, and returns. The memory is the device's.
  // After a failure it may do nothing. Allocates nothing once it has seen an operation of this
  // size.
  virtual void queue(const CollectiveCall& call, Stream& stream) = 0;
  // The first failure of an operation that was queued.
  virtual std::optional<CarrierFailure> failure() = 0;
  // As of a moment ago. Waits for nothing that the device does.
  virtual CarrierProgress progress() = 0;
  // Ends what is under way on this rank, so that its streams are done soon; the group is dead.
  virtual void abandon() = 0;
  // The same for some of the ranks, as Collectives::split has it; before anything is queued. All
  // ranks call it, and it blocks until they have. It must end before this one. Throws Error(device)
  // or Error(rank).
  virtual std::unique_ptr<Carrier> split(std::span<const int> ranks) = 0;
};

// The vendor's library, as an engine offers it (Engine::collectives).
struct VendorCollectives {
  // "NCCL 2.28.9"; opens the library.
  std::string (*library)() = nullptr;
  // One line: why it cannot be used here (not installed, too old); empty: it can.
  std::string (*problem)() = nullptr;
  // What the ranks of one new group share: made by one of them and handed to the others. Throws
  // Error(device).
  std::vector<std::byte> (*make_id)() = nullptr;
  // Blocks until all `size` ranks have come. Throws Error(device). The device outlives the carrier.
  std::unique_ptr<Carrier> (*join)(Device& device, std::span<const std::byte> id, int rank,
                                   int size) = nullptr;
};

inline constexpr size_t kMostVendorIdBytes = 256;

}  // namespace dltrain

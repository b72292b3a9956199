// Choices of rank 0 that all ranks adopt, through the store.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "comm/store.h"
#include "device/device.h"

namespace dltrain {

class RankAgreement {
 public:
  // The other ranks wait at most `timeout` for a choice of rank 0. `store` outlives this object.
  RankAgreement(StoreClient& store, int rank, std::chrono::milliseconds timeout)
      : store_(store), rank_(rank), timeout_(timeout) {}

  // Returns the result of `make` on rank 0, on every rank; for a key that was used before, the
  // earlier result. At most kStoreMaxValue bytes. If rank 0 makes no choice in time or has given
  // up, the other ranks throw Error(rank), later calls at once. Rank 0 gives up if `make` throws.
  std::string choose(const std::string& key, const std::function<std::string()>& make);

  // Rank 0 will make no more choices; the ranks that wait for one throw `reason`. Does nothing on
  // other ranks. Never throws.
  void abort(const std::string& reason);

  // This object must outlive the function.
  Agreement function() {
    return [this](const auto& key, const auto& make) { return choose(key, make); };
  }

 private:
  StoreClient& store_;
  int rank_;
  std::chrono::milliseconds timeout_;
  std::optional<std::string> over_;  // why rank 0 makes no more choices
};

}  // namespace dltrain

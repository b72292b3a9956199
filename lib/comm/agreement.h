// Choices that are the same on all ranks, by the store.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "comm/store.h"
#include "device/device.h"

namespace dltrain {

class RankAgreement {
 public:
  // The other ranks wait for a choice of rank 0 at most `timeout`. `store` outlives this object.
  RankAgreement(StoreClient& store, int rank, std::chrono::milliseconds timeout)
      : store_(store), rank_(rank), timeout_(timeout) {}

  // What `make` gives on rank 0, on every rank; for a key that was agreed on before, what it gave
  // then. At most kStoreMaxValue bytes. Where rank 0 does not come, or has given up, the others
  // throw Error(rank), from then on at once. Rank 0 gives up where `make` throws.
  std::string choose(const std::string& key, const std::function<std::string()>& make);

  // Rank 0 chooses nothing more: those who wait for it learn why. Nothing on other ranks; never
  // throws.
  void give_up(const std::string& reason);

  // As it is handed down; this object outlives it.
  Agreement function() {
    return [this](const auto& key, const auto& make) { return choose(key, make); };
  }

 private:
  std::string wait_for(const std::string& name);

  StoreClient& store_;
  int rank_;
  std::chrono::milliseconds timeout_;
  std::optional<std::string> over_;  // why nothing is waited for any more
};

}  // namespace dltrain

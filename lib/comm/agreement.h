// Choices of one rank that all ranks adopt, through the store.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "comm/store.h"

namespace dltrain {

class RankAgreement {
 public:
  // The other ranks wait at most `timeout` for a choice. `store` outlives this object.
  RankAgreement(StoreClient& store, int rank, std::chrono::milliseconds timeout)
      : store_(store), rank_(rank), timeout_(timeout) {}

  // Returns the result of `make` on rank 0, on every rank; for a key that was used before, the
  // earlier result. At most kStoreMaxValue bytes. If rank 0 makes no choice in time or has given
  // up, the other ranks throw Error(rank), later calls at once. Rank 0 gives up if `make` throws.
  std::string choose(const std::string& key, const std::function<std::string()>& make);
  // The same, but the first rank that asks for the key chooses, since ranks with different shards
  // or layers do not ask for the same keys. `make` may wait only for choices that wait for none.
  std::string choose_as_first(const std::string& key, const std::function<std::string()>& make);

  // Rank 0 will make no more choices; the ranks that wait for one throw `reason`. Does nothing on
  // other ranks. Never throws.
  void abort(const std::string& reason);

 private:
  // Returns the choice of the rank `chooser`.
  std::string choice_of(int chooser, const std::string& name,
                        const std::function<std::string()>& make);
  void give_up(const std::string& reason);

  StoreClient& store_;
  int rank_;
  std::chrono::milliseconds timeout_;
  std::optional<std::string> over_;  // why no more choices are made
};

}  // namespace dltrain

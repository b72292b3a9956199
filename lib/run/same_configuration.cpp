#include "run/same_configuration.h"

#include <algorithm>
#include <span>

#include "base/checksum.h"
#include "base/error.h"
#include "config/diff.h"

namespace dltrain {
namespace {

constexpr const char* kHash = "configuration/hash";
constexpr const char* kText = "configuration/text";
constexpr size_t kShown = 3;  // differing keys that are named

std::string hash_of(const std::string& text) {
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(text)));
  return hasher.hex();
}

}  // namespace

void check_same_configuration(StoreClient& store, int rank, int world,
                              const std::string& configuration) {
  if (world == 1) return;
  const std::string hash = hash_of(configuration);
  if (rank == 0) {
    // One that is too long for the store can be compared, but its keys cannot be named.
    store.set(kText, configuration.size() <= kStoreMaxValue ? configuration : "");
    store.set(kHash, hash);
    return;
  }
  if (store.get(kHash) == hash) return;
  const std::string first = store.get(kText);
  std::string keys;
  if (!first.empty()) {
    const auto differences = diff_dumps(first, configuration);
    for (size_t i = 0; i < std::min(differences.size(), kShown); ++i) {
      const auto& [path, theirs, ours] = differences[i];
      keys += fmt::format("{} {} is {} on rank 0 and {} on rank {}", i == 0 ? ":" : ",", path,
                          theirs.empty() ? "absent" : theirs, ours.empty() ? "absent" : ours, rank);
    }
    if (differences.size() > kShown) {
      keys += fmt::format(", and {} more", differences.size() - kShown);
    }
  }
  fail(ExitCode::usage, "the ranks were started with different configurations{}", keys);
}

}  // namespace dltrain

#include "run/verify_replicas.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "base/checksum.h"
#include "runtime/host_reduce.h"
#include "runtime/remote_error.h"

namespace dltrain {
namespace {

uint64_t hash_parameters(Executor& executor) {
  Hasher hasher;
  std::vector<std::byte> buffer;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (tensor.role == Role::parameter) hasher.update(executor.view_state(tensor.name, buffer));
  }
  return std::stoull(hasher.hex64(), nullptr, 16);
}

}  // namespace

void verify_replicas(Session& session, int64_t step) {
  const RunRanks& ranks = session.options.ranks;
  if (ranks.world == 1) return;
  const uint64_t own = hash_parameters(*session.executor);
  // Each rank adds its hash at its place; halves of 32 bits are exact in f64.
  std::vector<double> halves(2 * static_cast<size_t>(ranks.world));
  halves[2 * static_cast<size_t>(ranks.rank)] = static_cast<double>(own >> 32);
  halves[2 * static_cast<size_t>(ranks.rank) + 1] = static_cast<double>(own & 0xffffffff);
  static const auto subject = std::make_shared<const std::string>("hashes of the parameters");
  reduce_on_host(ranks.collectives, std::span(halves), ReduceOp::sum, subject);

  using Part = std::pair<int, int>;  // of the model: tensor and pipeline index
  std::map<Part, std::map<std::pair<double, double>, std::vector<int>>> replicas;
  for (int rank = 0; rank < ranks.world; ++rank) {
    const RankCoordinates at = coordinates_of(session.mesh, rank);
    const auto i = 2 * static_cast<size_t>(rank);
    replicas[{at.tensor.index, at.pipeline.index}][{halves[i], halves[i + 1]}].push_back(rank);
  }
  std::string found;
  for (const auto& [part, hashes] : replicas) {
    if (hashes.size() == 1) continue;
    const auto most =
        std::ranges::max_element(hashes, {}, [](const auto& entry) { return entry.second.size(); });
    std::vector<int> odd, all;
    for (const auto& [hash, members] : hashes) {
      all.insert(all.end(), members.begin(), members.end());
      if (hash != most->first) odd.insert(odd.end(), members.begin(), members.end());
    }
    std::ranges::sort(odd);
    std::ranges::sort(all);
    if (!found.empty()) found += "; ";
    found += odd.size() * 2 < all.size()
                 ? fmt::format("those of rank {} differ from those of its replicas",
                               fmt::join(odd, ", "))
                 : fmt::format("those of the replicas {} differ, and there is no majority",
                               fmt::join(all, ", "));
  }
  if (found.empty()) return;
  if (!ranks.is_leader()) throw RemoteError(0, ExitCode::rank);
  fail(
      ExitCode::rank,
      "step {}: the parameters of ranks that must be equal are not: {}. Nothing was saved since "
      "the last comparison. Memory or a device of that machine may be defective; continue from the "
      "newest checkpoint on another one (--resume auto)",
      step, found);
}

}  // namespace dltrain

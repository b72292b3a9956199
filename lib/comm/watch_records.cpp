#include "comm/watch_records.h"

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace dltrain {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFailure, rank, stuck, message, where, code)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WatchWait, group, number, peer, ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WatchPosition, rank, heartbeat, name, step, steps_done, busy_us,
                                   issued, host, finished, operation, device, done,
                                   device_operation, device_step)

namespace {

template <typename Record>
std::optional<Record> parse_watch(const std::string& text) {
  try {
    return parse_json(text).get<Record>();
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string RankFailure::to_text() const {
  return json_text(json(*this));
}

std::optional<RankFailure> RankFailure::from_text(const std::string& text) {
  return parse_watch<RankFailure>(text);
}

std::string WatchPosition::to_text() const {
  return json_text(json(*this));
}

std::optional<WatchPosition> WatchPosition::from_text(const std::string& text, int size) {
  auto out = parse_watch<WatchPosition>(text);
  const auto is_valid = [&](int rank) { return rank >= 0 && rank < size; };
  const bool valid = out && is_valid(out->rank) && out->host.peer < size && out->device.peer < size;
  return valid ? out : std::nullopt;
}

std::string members_text(std::span<const int> ranks) {
  return json_text(json(ranks));
}

std::vector<int> members_from_text(const std::string& text, int size) {
  auto ranks = parse_watch<std::vector<int>>(text).value_or(std::vector<int>{});
  std::erase_if(ranks, [&](int rank) { return rank < 0 || rank >= size; });
  return ranks;
}

}  // namespace dltrain

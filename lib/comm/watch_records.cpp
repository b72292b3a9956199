#include "comm/watch_records.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace dltrain {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFailure, rank, stuck, message, where, code)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WatchWait, group, number, members, ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WatchPosition, heartbeat, name, step, steps_done, busy_us,
                                   issued, host, finished, operation, device, done,
                                   device_operation, device_step)

namespace {

std::string watch_text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

template <typename Record>
std::optional<Record> parse_watch(const std::string& text) {
  try {
    return json::parse(text).get<Record>();
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string RankFailure::to_text() const {
  return watch_text(*this);
}

std::optional<RankFailure> RankFailure::from_text(const std::string& text) {
  return parse_watch<RankFailure>(text);
}

std::string WatchPosition::to_text() const {
  return watch_text(*this);
}

std::optional<WatchPosition> WatchPosition::from_text(const std::string& text, int size) {
  auto out = parse_watch<WatchPosition>(text);
  const auto is_valid = [&](const WatchWait& wait) {
    return std::all_of(wait.members.begin(), wait.members.end(),
                       [&](int rank) { return rank >= 0 && rank < size; });
  };
  if (out && (!is_valid(out->host) || !is_valid(out->device))) out.reset();
  return out;
}

}  // namespace dltrain

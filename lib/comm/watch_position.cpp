#include "comm/watch_position.h"

#include <nlohmann/json.hpp>

namespace dltrain {

using nlohmann::json;

std::string WatchPosition::to_text() const {
  return json{{"beat", beat},          {"name", name},
              {"step", step},          {"steps_done", steps_done},
              {"busy_us", busy_us},    {"issued", issued},
              {"group", group},        {"number", number},
              {"peer", peer},          {"waiting_ms", waiting_ms},
              {"members", members},    {"finished", finished},
              {"operation", operation}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<WatchPosition> WatchPosition::from_text(const std::string& text) {
  try {
    const json object = json::parse(text);
    return WatchPosition{.beat = object.at("beat"),
                         .name = object.at("name"),
                         .step = object.at("step"),
                         .steps_done = object.at("steps_done"),
                         .busy_us = object.at("busy_us"),
                         .issued = object.at("issued"),
                         .group = object.at("group"),
                         .number = object.at("number"),
                         .peer = object.at("peer"),
                         .members = object.at("members"),
                         .waiting_ms = object.at("waiting_ms"),
                         .finished = object.at("finished"),
                         .operation = object.at("operation")};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace dltrain

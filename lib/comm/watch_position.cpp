#include "comm/watch_position.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace dltrain {

using nlohmann::json;

namespace {

json to_json(const WatchWait& wait) {
  return {{"group", wait.group},
          {"number", wait.number},
          {"peer", wait.peer},
          {"members", wait.members},
          {"ms", wait.ms}};
}

WatchWait wait_from(const json& object) {
  return {.group = object.at("group"),
          .number = object.at("number"),
          .peer = object.at("peer"),
          .members = object.at("members"),
          .ms = object.at("ms")};
}

// That what it names is there: a group, or none, and ranks of so many.
bool is_among(const WatchWait& wait, int size) {
  return wait.group >= -1 && wait.peer >= -1 && wait.peer < size &&
         std::all_of(wait.members.begin(), wait.members.end(),
                     [&](int rank) { return rank >= 0 && rank < size; });
}

}  // namespace

std::string WatchPosition::to_text() const {
  return json{{"beat", beat},
              {"name", name},
              {"step", step},
              {"steps_done", steps_done},
              {"busy_us", busy_us},
              {"issued", issued},
              {"host", to_json(host)},
              {"finished", finished},
              {"operation", operation},
              {"device", to_json(device)},
              {"done", done},
              {"device_operation", device_operation},
              {"device_step", device_step}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

static std::optional<WatchPosition> parsed(const std::string& text) {
  try {
    const json object = json::parse(text);
    return WatchPosition{.beat = object.at("beat"),
                         .name = object.at("name"),
                         .step = object.at("step"),
                         .steps_done = object.at("steps_done"),
                         .busy_us = object.at("busy_us"),
                         .issued = object.at("issued"),
                         .host = wait_from(object.at("host")),
                         .finished = object.at("finished"),
                         .operation = object.at("operation"),
                         .device = wait_from(object.at("device")),
                         .done = object.at("done"),
                         .device_operation = object.at("device_operation"),
                         .device_step = object.at("device_step")};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::optional<WatchPosition> WatchPosition::from_text(const std::string& text, int size) {
  auto out = parsed(text);
  if (out && !(is_among(out->host, size) && is_among(out->device, size))) out.reset();
  return out;
}

}  // namespace dltrain

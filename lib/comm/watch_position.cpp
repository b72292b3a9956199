#include "comm/watch_position.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace dltrain {

using nlohmann::json;

namespace {

json to_json(const WatchWait& wait) {
  return {{"group", wait.group},
          {"number", wait.number},
          {"to", {wait.to.peer, wait.to.number}},
          {"from", {wait.from.peer, wait.from.number}},
          {"members", wait.members},
          {"ms", wait.ms}};
}

ObservedMessage message_from(const json& pair) {
  return {.peer = pair.at(0), .number = pair.at(1)};
}

json to_json(const std::vector<WatchMessages>& messages) {
  json rows = json::array();
  for (const WatchMessages& m : messages) {
    rows.push_back({m.group, m.peer, m.sent, m.received, m.sent_done, m.received_done});
  }
  return rows;
}

std::vector<WatchMessages> messages_from(const json& rows) {
  std::vector<WatchMessages> messages;
  for (const json& row : rows) {
    messages.push_back({row.at(0), row.at(1), row.at(2), row.at(3), row.at(4), row.at(5)});
  }
  return messages;
}

WatchWait wait_from(const json& object) {
  return {.group = object.at("group"),
          .number = object.at("number"),
          .to = message_from(object.at("to")),
          .from = message_from(object.at("from")),
          .members = object.at("members"),
          .ms = object.at("ms")};
}

// That what it names is there: a group, or none, and ranks of so many.
bool is_among(const WatchWait& wait, int size) {
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < size; };
  const auto is_message = [&](const ObservedMessage& message) {
    return is_rank(message.peer) || (message.peer == -1 && message.number == 0);
  };
  return wait.group >= -1 && is_message(wait.to) && is_message(wait.from) &&
         std::all_of(wait.members.begin(), wait.members.end(), is_rank);
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
              {"messages", to_json(messages)},
              {"device_operation", device_operation},
              {"device_step", device_step}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<WatchPosition> WatchPosition::from_text(const std::string& text, int size) {
  try {
    const json object = json::parse(text);
    WatchPosition out{.beat = object.at("beat"),
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
                      .messages = messages_from(object.at("messages")),
                      .device_operation = object.at("device_operation"),
                      .device_step = object.at("device_step")};
    if (!is_among(out.host, size) || !is_among(out.device, size)) return std::nullopt;
    return out;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace dltrain

#include "launch/rendezvous_messages.h"

namespace dltrain::launch_messages {

using nlohmann::json;

namespace {

// Of a rank's line that the other nodes are told.
constexpr size_t kMaxLine = 2000;

}  // namespace

json parse(const std::string& text) {
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) {
    fail(ExitCode::rank,
         "another launcher wrote what this one does not understand; is it of the "
         "same version?");
  }
  return value;
}

json to_json(const LaunchNode& node) {
  return {{"host", node.host},
          {"address", node.address},
          {"processes", node.processes},
          {"wanted_rank", node.wanted_rank}};
}

LaunchNode node_from(const json& object) {
  return {.host = field<std::string>(object, "host"),
          .address = field<std::string>(object, "address"),
          .processes = field<int>(object, "processes"),
          .wanted_rank = field<int>(object, "wanted_rank")};
}

std::string to_text(const Failure& failure, int place) {
  json lines = json::array();
  for (const std::string& line : failure.last_lines) lines.push_back(line.substr(0, kMaxLine));
  return json{{"code", failure.code}, {"curable", failure.curable}, {"message", failure.message},
              {"rank", failure.rank}, {"last_lines", lines},        {"place", place}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Failure failure_from(const json& object) {
  Failure out;
  out.code = field<int>(object, "code");
  out.curable = field<bool>(object, "curable");
  out.message = field<std::string>(object, "message");
  out.rank = field<int>(object, "rank");
  out.last_lines = field<std::vector<std::string>>(object, "last_lines");
  return out;
}

std::string contradiction(const std::vector<json>& entries) {
  const bool numbered = field<int>(entries.back(), "wanted_rank") >= 0;
  for (int i = 0; i < static_cast<int>(entries.size()) && numbered; ++i) {
    const json& entry = entries[static_cast<size_t>(i)];
    const int wanted = field<int>(entry, "wanted_rank");
    if (wanted == i) continue;
    if (wanted < 0) {
      return fmt::format("the node {} gives no --node-rank, others do",
                         field<std::string>(entry, "host"));
    }
    return fmt::format(
        "nodes came with contradictory --node-rank: {} where {} was expected, of {} nodes", wanted,
        i, entries.size());
  }
  return "";
}

std::string nodes_text(const LaunchOptions& options) {
  return options.min_nodes == options.max_nodes
             ? std::to_string(options.max_nodes)
             : fmt::format("{}:{}", options.min_nodes, options.max_nodes);
}

std::string difference(const json& a, const json& b) {
  const auto sentence = [&](const char* flag, const auto& of_a, const auto& of_b) {
    return fmt::format(
        "the launchers were given different {}: {} on {} (process {}) and {} on {} (process {})",
        flag, of_a, field<std::string>(a, "host"), field<int>(a, "process"), of_b,
        field<std::string>(b, "host"), field<int>(b, "process"));
  };
  const auto nodes = [](const json& o) { return field<std::string>(o, "nnodes"); };
  const auto restarts = [](const json& o) { return field<int>(o, "max_restarts"); };
  if (nodes(a) != nodes(b)) return sentence("--nnodes", nodes(a), nodes(b));
  if (restarts(a) != restarts(b)) return sentence("--max-restarts", restarts(a), restarts(b));
  return "";
}

void set_own_address(std::vector<json>& entries) {
  std::string address = field<std::string>(entries[0], "leader_address");
  for (const json& entry : entries) {
    if (!field<bool>(entry, "leads")) address = field<std::string>(entry, "leader_address");
  }
  for (json& entry : entries) {
    if (field<bool>(entry, "leads")) entry["address"] = address;
  }
}

}  // namespace dltrain::launch_messages

#include "launch/options.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

constexpr int kMaxProcesses = 4096, kMaxNodes = 1 << 16;

std::optional<int> whole_number(const std::string& text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Keys of torchrun's rendezvous that are not supported, and why.
constexpr std::pair<const char*, const char*> kRefusedConf[] = {
    {"rank", "use --node-rank"},
    {"endpoint", "use --rdzv-endpoint"},
    {"close_timeout", "the nodes always wait up to 3 s for each other at the end"},
    {"keep_alive_interval",
     "a lost node is detected when its connection ends; see --monitor-interval and read_timeout"},
    {"keep_alive_max_attempt",
     "a lost node is detected when its connection ends; see read_timeout"},
    {"use_agent_store", "the ranks always use the launcher's store"},
};

std::optional<bool> truth(const std::string& text) {
  for (const char* word : {"1", "true", "t", "yes", "y"}) {
    if (text == word) return true;
  }
  for (const char* word : {"0", "false", "f", "no", "n"}) {
    if (text == word) return false;
  }
  return std::nullopt;
}

milliseconds* time_of(const std::string& name, LaunchOptions& options) {
  return name == "timeout" || name == "join_timeout" ? &options.join_timeout
         : name == "last_call_timeout"               ? &options.last_call
         : name == "read_timeout"                    ? &options.read_timeout
                                                     : nullptr;
}

}  // namespace

std::pair<int, int> parse_nodes(const std::string& text) {
  const auto parts = split(text, ':');
  const auto low = whole_number(parts.front()), high = whole_number(parts.back());
  if (parts.size() > 2 || !low || !high || *low < 1 || *high < *low || *high > kMaxNodes) {
    fail(ExitCode::usage,
         "--nnodes {}: expected a number of nodes, or the minimum and the maximum as MIN:MAX",
         text);
  }
  return {*low, *high};
}

int parse_processes(const std::string& text, const std::function<int()>& gpus) {
  if (text == "cpu") return find_usable_cpus().threads();
  if (text == "gpu" || text == "auto") {
    const int count = gpus();
    if (count > 0) return count;
    if (text == "auto") return find_usable_cpus().threads();
    fail(ExitCode::device, "--nproc-per-node gpu: this machine has no GPU that can be used");
  }
  const auto value = whole_number(text);
  if (!value || *value < 1 || *value > kMaxProcesses) {
    fail(ExitCode::usage, "--nproc-per-node {}: expected a number from 1 to {}, auto, gpu or cpu",
         text, kMaxProcesses);
  }
  return *value;
}

StreamChoice parse_streams(const std::string& flag, const std::string& text) {
  StreamChoice out;
  const auto stream = [&](const std::string& digit) {
    const auto value = whole_number(digit);
    if (!value || *value < 0 || *value > 3) {
      fail(ExitCode::usage,
           "{} {}: expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), for all local ranks, or "
           "as RANK:N,RANK:N",
           flag, text);
    }
    return *value;
  };
  if (text.find(':') == text.npos) {
    out.all = stream(text);
    return out;
  }
  for (const std::string& entry : split(text, ',')) {
    const auto parts = split(entry, ':');
    const auto rank = whole_number(parts.front());
    if (parts.size() != 2 || !rank || *rank < 0 || *rank >= kMaxProcesses) stream("");
    out.of_local[*rank] = stream(parts[1]);
  }
  return out;
}

std::pair<std::string, int> parse_endpoint(const std::string& text, int default_port) {
  const bool bracketed = text.starts_with('[');
  const size_t host_end = bracketed ? text.find(']') : text.rfind(':');
  std::string host = text.substr(bracketed ? 1 : 0, host_end - (bracketed ? 1 : 0));
  std::string rest = host_end == text.npos ? "" : text.substr(host_end + (bracketed ? 1 : 0));
  int port = default_port;
  if (!rest.empty()) port = whole_number(rest.substr(1)).value_or(-1);
  if (host.empty() || (bracketed && host_end == text.npos) || (!rest.empty() && rest[0] != ':') ||
      port < 0 || port > 65535) {
    fail(ExitCode::usage, "--rdzv-endpoint {}: expected HOST:PORT", text);
  }
  return {host, port};
}

void parse_rendezvous_conf(const std::string& text, LaunchOptions& to) {
  for (const std::string& entry : split(text, ',')) {
    const auto parts = split(entry, '=');
    const std::string& name = parts.front();
    for (const auto& [refused, reason] : kRefusedConf) {
      if (name == refused) fail(ExitCode::usage, "--rdzv-conf {}: {}", name, reason);
    }
    const std::string value = parts.size() == 2 ? parts[1] : "";
    if (name == "is_host" && truth(value)) {
      to.is_host = truth(value);
    } else if (milliseconds* time = time_of(name, to); time != nullptr && parts.size() == 2) {
      const auto seconds = whole_number(value);
      if (!seconds || *seconds < 1 || *seconds > 864'000) {
        fail(ExitCode::usage, "--rdzv-conf {}: expected a number of seconds from 1 to 864000",
             entry);
      }
      *time = std::chrono::seconds(*seconds);
    } else if (entry != "store_type=tcp") {
      fail(ExitCode::usage,
           "--rdzv-conf {}: expected join_timeout=SECONDS, last_call_timeout=SECONDS, "
           "read_timeout=SECONDS, is_host=0 or 1",
           text);
    }
  }
}

}  // namespace dltrain

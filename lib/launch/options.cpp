#include "launch/options.h"

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/parse_number.h"
#include "launch/cpus.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

constexpr int kMaxProcesses = 4096, kMaxNodes = 1 << 16;

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

}  // namespace

std::pair<int, int> parse_nodes(const std::string& text) {
  const auto parts = split(text, ':');
  const auto low = parse_number<int>(parts.front()), high = parse_number<int>(parts.back());
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
  const auto value = parse_number<int>(text);
  if (!value || *value < 1 || *value > kMaxProcesses) {
    fail(ExitCode::usage, "--nproc-per-node {}: expected a number from 1 to {}, auto, gpu or cpu",
         text, kMaxProcesses);
  }
  return *value;
}

std::pair<std::string, int> parse_endpoint(const std::string& text, int default_port) {
  const bool bracketed = text.starts_with('[');
  const size_t host_end = bracketed ? text.find(']') : text.rfind(':');
  std::string host = text.substr(bracketed ? 1 : 0, host_end - (bracketed ? 1 : 0));
  std::string rest = host_end == text.npos ? "" : text.substr(host_end + (bracketed ? 1 : 0));
  int port = default_port;
  if (!rest.empty()) port = parse_number<int>(rest.substr(1)).value_or(-1);
  if (host.empty() || (bracketed && host_end == text.npos) || (!rest.empty() && rest[0] != ':') ||
      port < 0 || port > 65535) {
    fail(ExitCode::usage, "--rdzv-endpoint {}: expected HOST:PORT", text);
  }
  return {host, port};
}

void parse_rendezvous_conf(const std::string& text, LaunchOptions& to) {
  for (const std::string& entry : split(text, ',')) {
    const auto parts = split(entry, '=');
    milliseconds* time = parts[0] == "join_timeout"        ? &to.join_timeout
                         : parts[0] == "last_call_timeout" ? &to.last_call
                         : parts[0] == "read_timeout"      ? &to.read_timeout
                                                           : nullptr;
    const auto seconds = parts.size() == 2 ? parse_number<int>(parts[1]) : std::nullopt;
    if (time == nullptr || !seconds || *seconds < 1 || *seconds > 864'000) {
      fail(ExitCode::usage,
           "--rdzv-conf {}: expected join_timeout, last_call_timeout or read_timeout, each as "
           "NAME=SECONDS from 1 to 864000",
           entry);
    }
    *time = std::chrono::seconds(*seconds);
  }
}

}  // namespace dltrain

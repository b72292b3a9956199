#include "launch/cpus.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "base/cpus.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxCpus = 1 << 16;

// Reads a file of /sys or /proc. Returns an empty text if it does not exist.
std::string read_small(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int number_or(const std::string& text, int otherwise) {
  int value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Returns the smallest quota of the group and its parents ("max 100000" or "400000 100000"). In a
// container the path may be that of the host and not exist; then the root of the mounted hierarchy
// is used.
std::optional<double> find_quota(const fs::path& root) {
  constexpr std::string_view kGroup = "0::/";
  const std::string group = read_small(root / "proc/self/cgroup");
  const size_t begin = group.find(kGroup);
  if (begin == group.npos) return std::nullopt;
  const size_t name = begin + kGroup.size();
  std::optional<double> least;
  fs::path folder = group.substr(name, group.find('\n', name) - name);
  for (;; folder = folder.parent_path()) {
    std::istringstream file(read_small(root / "sys/fs/cgroup" / folder / "cpu.max"));
    double quota = 0, period = 0;
    if (file >> quota >> period && period > 0)
      least = std::min(least.value_or(quota / period), quota / period);
    if (folder.empty()) return least;
  }
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> out;
  while (!text.empty()) {
    int begin = 0;
    auto parsed = std::from_chars(text.data(), text.data() + text.size(), begin);
    if (parsed.ec != std::errc() || begin < 0) return out;
    int end = begin;
    text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
    if (text.starts_with('-')) {
      parsed = std::from_chars(text.data() + 1, text.data() + text.size(), end);
      if (parsed.ec != std::errc()) return out;
      text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
    }
    for (int cpu = begin; cpu <= std::min(end, kMaxCpus); ++cpu) out.push_back(cpu);
    if (!text.starts_with(',')) return out;
    text.remove_prefix(1);
  }
  return out;
}

UsableCpus describe_cpus(const std::vector<int>& numbers, const fs::path& root) {
  const fs::path devices = root / "sys/devices/system";
  std::map<int, int> node_of;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(devices / "node", ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("node")) continue;
    const int node = number_or(name.substr(4), 0);
    for (int cpu : parse_cpu_list(read_small(entry.path() / "cpulist"))) node_of[cpu] = node;
  }
  std::vector<std::array<int, 4>> order;  // node, package, core, number
  for (int number : numbers) {
    const fs::path topology = devices / fmt::format("cpu/cpu{}/topology", number);
    order.push_back({node_of[number], number_or(read_small(topology / "physical_package_id"), 0),
                     number_or(read_small(topology / "core_id"), number), number});
  }
  std::sort(order.begin(), order.end());
  UsableCpus out{.quota = find_quota(root)};
  for (const auto& cpu : order) out.cpus.push_back(cpu.back());
  return out;
}

UsableCpus find_usable_cpus() {
  return describe_cpus(bound_cpus(), "/");
}

int UsableCpus::threads() const {
  const auto count = static_cast<double>(cpus.size());
  return std::max(1, static_cast<int>(quota ? std::min(*quota, count) : count));
}

CpuDivision divide_cpus(const UsableCpus& usable, int ranks, bool bind) {
  CpuDivision out{.ranks = std::vector<std::vector<int>>(static_cast<size_t>(ranks)),
                  .threads = std::max(1, usable.threads() / ranks)};
  const size_t each = usable.cpus.size() / out.ranks.size();
  size_t left = usable.cpus.size() % out.ranks.size();
  if (ranks == 1 || each == 0 || !bind) return out;
  auto at = usable.cpus.begin();
  for (std::vector<int>& share : out.ranks) {
    const auto end = at + static_cast<std::ptrdiff_t>(each + (left > 0 ? 1 : 0));
    left -= left > 0 ? 1 : 0;
    share.assign(at, end);
    std::sort(share.begin(), share.end());
    at = end;
  }
  return out;
}

}  // namespace dltrain

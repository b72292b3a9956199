#include "launch/cpus.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <tuple>

#include <sched.h>

#include "base/cpus.h"
#include "base/error.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxCpus = 1 << 16;

// Reads a file of /sys or /proc. Returns an empty text if it does not exist.
std::string read_small(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<double> first_number(const std::string& text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() ? std::optional(value) : std::nullopt;
}

// Reads the quota of one control group (v2): "max 100000" or "400000 100000".
std::optional<double> quota_v2(const fs::path& folder) {
  const std::string text = read_small(folder / "cpu.max");
  const auto quota = first_number(text);
  const size_t space = text.find(' ');
  if (!quota || space == text.npos) return std::nullopt;
  const auto period = first_number(text.substr(space + 1));
  return period && *period > 0 ? std::optional(*quota / *period) : std::nullopt;
}

std::optional<double> quota_v1(const fs::path& folder) {
  const auto quota = first_number(read_small(folder / "cpu.cfs_quota_us"));
  const auto period = first_number(read_small(folder / "cpu.cfs_period_us"));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

// Returns the smallest quota of the group and its parents. In a container the path may be that of
// the host and not exist; then the root of the mounted hierarchy is used.
std::optional<double> find_quota(const fs::path& root) {
  std::optional<double> least;
  std::istringstream lines(read_small(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string kinds = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool v2 = kinds == ",,";
    if (!v2 && kinds.find(",cpu,") == kinds.npos) continue;
    const fs::path top = root / (v2 ? "sys/fs/cgroup" : "sys/fs/cgroup/cpu");
    fs::path folder = fs::path(line.substr(second + 1)).relative_path();
    for (;;) {
      const auto quota = v2 ? quota_v2(top / folder) : quota_v1(top / folder);
      if (quota) least = least ? std::min(*least, *quota) : *quota;
      if (folder.empty()) break;
      folder = folder.parent_path();
    }
  }
  return least;
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
    const auto node = first_number(name.substr(4));
    if (!node) continue;
    for (int cpu : parse_cpu_list(read_small(entry.path() / "cpulist"))) {
      node_of[cpu] = static_cast<int>(*node);
    }
  }
  UsableCpus out{.cpus = {}, .quota = find_quota(root)};
  for (int number : numbers) {
    const fs::path topology = devices / fmt::format("cpu/cpu{}/topology", number);
    const auto read = [&](const char* name, int otherwise) {
      return static_cast<int>(first_number(read_small(topology / name)).value_or(otherwise));
    };
    const auto node = node_of.find(number);
    out.cpus.push_back({.number = number,
                        .node = node == node_of.end() ? 0 : node->second,
                        .package = read("physical_package_id", 0),
                        .core = read("core_id", number)});
  }
  std::sort(out.cpus.begin(), out.cpus.end(), [](const Cpu& a, const Cpu& b) {
    return std::tie(a.node, a.package, a.core, a.number) <
           std::tie(b.node, b.package, b.core, b.number);
  });
  return out;
}

UsableCpus find_usable_cpus(const fs::path& root) {
  return describe_cpus(bound_cpus(), root);
}

int UsableCpus::threads() const {
  const auto count = static_cast<double>(cpus.size());
  return std::max(1, static_cast<int>(quota ? std::min(*quota, count) : count));
}

CpuBinding parse_cpu_binding(const std::string& text) {
  if (text == "exclusive") return CpuBinding::exclusive;
  if (text == "node") return CpuBinding::node;
  if (text == "none") return CpuBinding::none;
  fail(ExitCode::usage, "--numa-binding {}: expected exclusive, node or none", text);
}

namespace {

// Returns the number of ranks on each NUMA node, with `threads` CPUs each. Empty if a rank would
// have CPUs of several nodes.
std::vector<int> ranks_of_nodes(const std::vector<std::vector<int>>& nodes, int ranks,
                                int threads) {
  std::vector<int> dealt(nodes.size(), 0);
  const auto room = [&](size_t n) {  // CPUs per rank with one more rank
    return static_cast<int>(nodes[n].size()) / (dealt[n] + 1);
  };
  for (int i = 0; i < ranks; ++i) {
    size_t best = 0;
    for (size_t n = 1; n < nodes.size(); ++n) {
      if (room(n) > room(best)) best = n;
    }
    if (room(best) < threads) return {};
    ++dealt[best];
  }
  return dealt;
}

// Divides CPUs into contiguous pieces; the first ones get the remainder.
void cut(const std::vector<int>& cpus, int pieces, std::vector<std::vector<int>>& out) {
  const size_t each = cpus.size() / static_cast<size_t>(pieces);
  size_t left = cpus.size() % static_cast<size_t>(pieces);
  auto at = cpus.begin();
  for (int i = 0; i < pieces; ++i) {
    const size_t count = each + (left > 0 ? 1 : 0);
    left -= left > 0 ? 1 : 0;
    const auto end = at + static_cast<std::ptrdiff_t>(count);
    out.emplace_back(at, end);
    at = end;
  }
}

}  // namespace

CpuDivision divide_cpus(const UsableCpus& usable, int ranks, CpuBinding binding) {
  CpuDivision out{.ranks = {}, .threads = std::max(1, usable.threads() / ranks)};
  std::vector<std::vector<int>> nodes;
  std::vector<int> all;
  for (size_t i = 0; i < usable.cpus.size(); ++i) {
    if (i == 0 || usable.cpus[i].node != usable.cpus[i - 1].node) nodes.emplace_back();
    nodes.back().push_back(usable.cpus[i].number);
    all.push_back(usable.cpus[i].number);
  }
  const int each = static_cast<int>(all.size()) / ranks;  // CPUs of a rank
  if (ranks == 1 || each == 0 || binding == CpuBinding::none) {
    out.ranks.resize(static_cast<size_t>(ranks));
    return out;
  }
  const std::vector<int> dealt = ranks_of_nodes(nodes, ranks, each);
  if (dealt.empty()) {
    if (binding == CpuBinding::exclusive) {
      cut(all, ranks, out.ranks);
    } else {
      out.ranks.resize(static_cast<size_t>(ranks));
    }
  }
  for (size_t n = 0; n < dealt.size(); ++n) {
    if (dealt[n] == 0) continue;
    if (binding == CpuBinding::exclusive) {
      cut(nodes[n], dealt[n], out.ranks);
    } else {
      for (int i = 0; i < dealt[n]; ++i) out.ranks.push_back(nodes[n]);
    }
  }
  for (std::vector<int>& share : out.ranks) std::sort(share.begin(), share.end());
  return out;
}

CpuMask::CpuMask(const std::vector<int>& cpus) {
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  for (int cpu : cpus) {
    const auto at = static_cast<size_t>(cpu);
    if (bits_.size() <= at / kBits) bits_.resize(at / kBits + 1);
    bits_[at / kBits] |= 1UL << at % kBits;
  }
}

bool CpuMask::apply() const {
  return bits_.empty() || sched_setaffinity(0, bits_.size() * sizeof(bits_[0]),
                                            reinterpret_cast<const cpu_set_t*>(bits_.data())) == 0;
}

}  // namespace dltrain

#include "base/memory.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/utf8.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kKiB = 1024;

// The number after the first word `key` of a file, or the file's only number. Control groups write
// "max" where there is no limit.
std::optional<uint64_t> number_in(const fs::path& path, const std::string& key = "") {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t digit = line.find_first_of("0123456789", key.size());
    if (digit == std::string::npos) return std::nullopt;
    return std::strtoull(line.c_str() + digit, nullptr, 10);
  }
  return std::nullopt;
}

// Names of the files of one version of control groups.
struct GroupFiles {
  const char *folder, *limit, *usage, *inactive, *active;
};
constexpr GroupFiles kFirst{"sys/fs/cgroup/memory", "memory.limit_in_bytes",
                            "memory.usage_in_bytes", "total_inactive_file ", "total_active_file "};
constexpr GroupFiles kSecond{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ",
                             "active_file "};

// Adds the limits of the group `path` and of those around it. In a container `path` may be a name
// outside of it, of which only the outermost folder exists here.
void add_groups(const fs::path& root, const GroupFiles& files, fs::path path, uint64_t used,
                std::vector<MemoryLimit>& out) {
  const fs::path base = root / files.folder;
  for (path = path.relative_path();; path = path.parent_path()) {
    const fs::path group = path.empty() ? base : base / path;
    const auto limit = number_in(group / files.limit);
    const auto usage = number_in(group / files.usage);
    // Groups of version 1 without a limit have one of 2^63 bytes.
    if (limit && usage && *limit < uint64_t{1} << 60) {
      const uint64_t cached = number_in(group / "memory.stat", files.inactive).value_or(0) +
                              number_in(group / "memory.stat", files.active).value_or(0);
      const uint64_t taken = *usage - std::min(*usage, cached);
      out.push_back({"the control group (container) has", MemoryLimit::Of::machine, used,
                     used + *limit - std::min(*limit, taken)});
    }
    if (path.empty()) return;
  }
}

void add_ulimit(int resource, const char* owner, MemoryLimit::Of of, uint64_t used,
                std::vector<MemoryLimit>& out) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return;
  }
  out.push_back({owner, of, used, limit.rlim_cur});
}

}  // namespace

std::vector<MemoryLimit> memory_limits(const fs::path& root) {
  std::vector<MemoryLimit> out;
  const fs::path status = root / "proc/self/status";
  const auto own = [&](const char* key) { return kKiB * number_in(status, key).value_or(0); };
  // Pages of files can be read again.
  const uint64_t used = own("RssAnon:") + own("RssShmem:");
  if (const auto available = number_in(root / "proc/meminfo", "MemAvailable:")) {
    out.push_back({"this machine has", MemoryLimit::Of::machine, used, used + kKiB * *available});
  }
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "4:memory:/path" (version 1), "0::/path" (version 2)
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kinds = line.substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (kinds.empty()) add_groups(root, kSecond, path, used, out);
    if (fmt::format(",{},", kinds).find(",memory,") != std::string::npos) {
      add_groups(root, kFirst, path, used, out);
    }
  }
  add_ulimit(RLIMIT_AS, "ulimit -v allows addresses of", MemoryLimit::Of::addresses, own("VmSize:"),
             out);
  add_ulimit(RLIMIT_DATA, "ulimit -d allows", MemoryLimit::Of::data, own("VmData:"), out);
  for (MemoryLimit& limit : out) {
    if (limit.of == MemoryLimit::Of::machine) limit.peak = own("VmHWM:");
  }
  return out;
}

std::optional<uint64_t> parse_bytes(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return std::nullopt;
  std::string word = lower_ascii(std::string_view(unit, end));
  word.erase(0, word.find_first_not_of(' '));
  double factor = 1;
  if (!word.empty() && word != "b") {
    const size_t power = std::string("kmgt").find(word[0]) + 1;
    const std::string rest = word.substr(1);
    if (power == 0 || (!rest.empty() && rest != "b" && rest != "ib")) return std::nullopt;
    factor = std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power));
  }
  const double bytes = number * factor;
  if (!(bytes >= 1 && bytes < 0x1p60)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

std::string bytes_text(size_t bytes) {
  const double b = static_cast<double>(bytes);
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < size_t{1} << 20) return fmt::format("{:.1f} KiB", b / 1024);
  if (bytes < size_t{1} << 30) return fmt::format("{:.1f} MiB", b / (1 << 20));
  return fmt::format("{:.2f} GiB", b / (1 << 30));
}

}  // namespace dltrain

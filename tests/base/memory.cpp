// The limits of memory are those of the machine, of control groups and of ulimit.
#include "base/memory.h"

#include <algorithm>
#include <fstream>

#include "catch.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

void put(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// The limits of memory that processes share, as free bytes in MiB.
std::vector<uint64_t> free_mib(const std::filesystem::path& root) {
  std::vector<uint64_t> out;
  for (const MemoryLimit& limit : memory_limits(root)) {
    if (limit.of != MemoryLimit::Of::machine) continue;
    CHECK(limit.used == 30 * kMiB);
    CHECK(limit.peak == 77 * kMiB);
    out.push_back((limit.has - limit.used) / kMiB);
  }
  return out;
}

void put_machine(const std::filesystem::path& root, const std::string& groups) {
  put(root / "proc/self/status",
      "Name:\tdltrain\nVmHWM:\t  78848 kB\nVmRSS:\t  61440 kB\nRssAnon:\t  29696 kB\n"
      "RssFile:\t  30720 kB\nRssShmem:\t    1024 kB\n");
  put(root / "proc/meminfo", "MemTotal:  4194304 kB\nMemFree: 1 kB\nMemAvailable:  2048000 kB\n");
  put(root / "proc/self/cgroup", groups);
}

}  // namespace

TEST_CASE("this process has limits, and uses some of them") {
  const std::vector<MemoryLimit> limits = memory_limits();
  REQUIRE(!limits.empty());
  CHECK(limits[0].owner == "this machine has");
  CHECK(limits[0].used > 0);
  CHECK(limits[0].peak >= limits[0].used);
  CHECK(limits[0].has > limits[0].used);
}

TEST_CASE("control groups limit the memory, those around them too, and cached files are free") {
  const TemporaryFolder folder;
  const std::filesystem::path root = folder.path();
  SECTION("without a control group the machine's available memory counts") {
    put_machine(root, "");
    CHECK(free_mib(root) == std::vector<uint64_t>{2000});
  }
  SECTION("version 2") {
    put_machine(root, "0::/job/step\n");
    put(root / "sys/fs/cgroup/job/memory.max", "1073741824\n");
    put(root / "sys/fs/cgroup/job/memory.current", "536870912\n");
    put(root / "sys/fs/cgroup/job/memory.stat",
        "anon 7\nfile 9\ninactive_file 104857600\nactive_file 10485760\n");
    put(root / "sys/fs/cgroup/job/step/memory.max", "max\n");
    put(root / "sys/fs/cgroup/job/step/memory.current", "5\n");
    CHECK(free_mib(root) == std::vector<uint64_t>{2000, 622});
  }
  SECTION("version 1 in a container, whose own name for its group is that of the host") {
    put_machine(root, "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n0::/docker/1\n");
    put(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", "314572800\n");
    put(root / "sys/fs/cgroup/memory/memory.usage_in_bytes", "419430400\n");
    put(root / "sys/fs/cgroup/memory/memory.stat",
        "inactive_file 1\ntotal_inactive_file 209715200\ntotal_active_file 0\n");
    CHECK(free_mib(root) == std::vector<uint64_t>{2000, 100});
  }
  SECTION("version 1 without a limit, and a group that uses more than its limit") {
    put_machine(root, "4:memory:/a\n");
    put(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(root / "sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
    put(root / "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1048576\n");
    put(root / "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "2097152\n");
    CHECK(free_mib(root) == std::vector<uint64_t>{2000, 0});
  }
}

TEST_CASE("sizes have the units that people write") {
  CHECK(parse_bytes("80GB") == 80'000'000'000);
  CHECK(parse_bytes("20 GiB") == 20 * 1024 * kMiB);
  CHECK(parse_bytes("1.5g") == 1536 * kMiB);
  CHECK(parse_bytes("512M") == 512 * kMiB);
  CHECK(parse_bytes("4096") == 4096);
  CHECK(parse_bytes("4096b") == 4096);
  for (const char* wrong : {"", "GB", "-1GB", "0", "12 apples", "80GBs", "80XB", "80i", "nan",
                            "inf", "1e40", "2 000", "all"}) {
    INFO(wrong);
    CHECK(!parse_bytes(wrong));
  }
  CHECK(bytes_text(9999) == "9999 B");
  CHECK(bytes_text(3 * kMiB / 2) == "1.5 MiB");
  CHECK(bytes_text(2048 * kMiB) == "2.00 GiB");
}

// How ranks share CPUs: on machines that are made up, as folders of files, and on this one.
#include "launch/cpus.h"

#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "catch.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

using Shares = std::vector<std::vector<int>>;

// Files of /sys as Linux has them. CPU i lies on node nodes[i] and is a thread of core cores[i].
class FakeMachine {
 public:
  FakeMachine(const std::vector<int>& nodes, const std::vector<int>& cores) {
    std::map<int, std::string> lists;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto cpu = fmt::format("sys/devices/system/cpu/cpu{}/topology/", i);
      put(cpu + "physical_package_id", fmt::format("{}\n", nodes[i]));
      put(cpu + "core_id", fmt::format("{}\n", cores[i]));
      std::string& list = lists[nodes[i]];
      list += fmt::format("{}{}", list.empty() ? "" : ",", i);
    }
    for (const auto& [node, list] : lists) {
      put(fmt::format("sys/devices/system/node/node{}/cpulist", node), list + "\n");
    }
    all_.resize(nodes.size());
    std::iota(all_.begin(), all_.end(), 0);
  }
  void put(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    folder_.write(name, content);
  }
  UsableCpus usable() const { return describe_cpus(all_, folder_.path()); }
  UsableCpus usable(const std::vector<int>& cpus) const {
    return describe_cpus(cpus, folder_.path());
  }

 private:
  TemporaryFolder folder_;
  std::vector<int> all_;
};

// Two nodes of two cores with two threads each, numbered as Linux numbers them: the second threads
// of all cores come last.
const FakeMachine& two_nodes() {
  static const FakeMachine machine({0, 0, 1, 1, 0, 0, 1, 1}, {0, 1, 0, 1, 0, 1, 0, 1});
  return machine;
}

std::vector<int> numbers(const UsableCpus& usable) {
  return usable.cpus;
}

}  // namespace

TEST_CASE("lists of CPUs are read as the kernel writes them") {
  CHECK(parse_cpu_list("0-3,8,10-11\n") == std::vector<int>{0, 1, 2, 3, 8, 10, 11});
  CHECK(parse_cpu_list("5") == std::vector<int>{5});
  CHECK(parse_cpu_list("\n").empty());
  CHECK(parse_cpu_list("").empty());
  CHECK(parse_cpu_list("1,x") == std::vector<int>{1});
}

TEST_CASE("threads of a core, and cores of a node, are neighbours") {
  CHECK(numbers(two_nodes().usable()) == std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7});
  CHECK(two_nodes().usable().threads() == 8);
  // Only what the launcher may use.
  CHECK(numbers(two_nodes().usable({1, 2, 5})) == std::vector<int>{1, 5, 2});
  // A machine that tells nothing is one node.
  const TemporaryFolder nothing;
  CHECK(numbers(describe_cpus({3, 1}, nothing.path())) == std::vector<int>{1, 3});
}

TEST_CASE("ranks get CPUs of their own, within a node where that comes out even") {
  const UsableCpus usable = two_nodes().usable();
  const auto shares = [&](int ranks) { return divide_cpus(usable, ranks).ranks; };
  CHECK(shares(2) == Shares{{0, 1, 4, 5}, {2, 3, 6, 7}});
  CHECK(shares(4) == Shares{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(shares(8) == Shares{{0}, {4}, {1}, {5}, {2}, {6}, {3}, {7}});
  CHECK(shares(3) == Shares{{0, 1, 4}, {2, 5, 6}, {3, 7}});
  for (int ranks = 1; ranks <= 8; ++ranks) CHECK(divide_cpus(usable, ranks).threads == 8 / ranks);
  // More nodes than ranks.
  const FakeMachine four({0, 1, 2, 3}, {0, 0, 0, 0});
  CHECK(divide_cpus(four.usable(), 2).ranks == Shares{{0, 1}, {2, 3}});
}

TEST_CASE("every CPU is of one rank at most, whatever the machine and the number of ranks") {
  for (int cpus = 1; cpus <= 12; ++cpus) {
    for (int nodes = 1; nodes <= 3; ++nodes) {
      std::vector<int> node_of, core_of;
      for (int i = 0; i < cpus; ++i) {
        node_of.push_back(i % nodes);
        core_of.push_back(i / nodes);
      }
      const UsableCpus usable = FakeMachine(node_of, core_of).usable();
      for (int ranks = 2; ranks <= 14; ++ranks) {
        INFO(cpus << " CPUs, " << nodes << " nodes, " << ranks << " ranks");
        const CpuDivision division = divide_cpus(usable, ranks);
        REQUIRE(division.ranks.size() == static_cast<size_t>(ranks));
        std::set<int> seen;
        size_t bound = 0;
        for (const auto& share : division.ranks) {
          bound += share.size();
          seen.insert(share.begin(), share.end());
          CHECK((ranks > cpus ? share.empty()
                              : share.size() >= static_cast<size_t>(division.threads)));
        }
        CHECK(seen.size() == bound);
        CHECK(division.threads == std::max(1, cpus / ranks));
      }
    }
  }
}

TEST_CASE("with more ranks than CPUs, with one rank, or if asked, nothing is bound") {
  const UsableCpus usable = two_nodes().usable();
  CHECK(divide_cpus(usable, 9).ranks == Shares(9));
  CHECK(divide_cpus(usable, 9).threads == 1);
  CHECK(divide_cpus(usable, 1).ranks == Shares(1));
  CHECK(divide_cpus(usable, 4, false).ranks == Shares(4));
  CHECK(divide_cpus(usable, 4, false).threads == 2);
}

TEST_CASE("the quota of a control group limits threads, not where they run") {
  const auto threads = [](const std::string& group, const std::string& file,
                          const std::string& text) {
    const FakeMachine machine({0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 5, 6, 7});
    machine.put("proc/self/cgroup", group);
    machine.put(file, text);
    const UsableCpus usable = machine.usable();
    CHECK(divide_cpus(usable, 2).ranks == Shares{{0, 1, 2, 3}, {4, 5, 6, 7}});
    return usable.threads();
  };
  CHECK(threads("0::/\n", "sys/fs/cgroup/cpu.max", "400000 100000\n") == 4);
  CHECK(threads("0::/\n", "sys/fs/cgroup/cpu.max", "max 100000\n") == 8);
  CHECK(threads("0::/\n", "sys/fs/cgroup/cpu.max", "50000 100000\n") == 1);
  CHECK(threads("0::/\n", "sys/fs/cgroup/cpu.max", "") == 8);
  // Of the group itself, and of one above it.
  CHECK(threads("0::/jobs/7\n", "sys/fs/cgroup/jobs/7/cpu.max", "250000 100000\n") == 2);
  CHECK(threads("0::/jobs/7\n", "sys/fs/cgroup/jobs/cpu.max", "300000 100000\n") == 3);
}

TEST_CASE("this machine's CPUs are found") {
  const UsableCpus usable = find_usable_cpus();
  CHECK_FALSE(usable.cpus.empty());
  CHECK(usable.threads() >= 1);
  CHECK(usable.threads() <= static_cast<int>(usable.cpus.size()));
}

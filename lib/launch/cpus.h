// Finds the CPUs of this process and their topology, and divides them among ranks.
//
// Sources: the affinity mask, the CPU quota of the control group (version 2), and the topology in
// /sys. If the topology is missing, one NUMA node of single cores is assumed.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace dltrain {

struct UsableCpus {
  std::vector<int> cpus = {};  // numbers of the kernel, sorted by NUMA node, package and core
  // The quota of the control group, in CPUs; none: unlimited.
  std::optional<double> quota = {};

  // Returns the number of threads that can run at the same time, at least 1.
  int threads() const;
};

// Returns the CPUs of this process.
UsableCpus find_usable_cpus();
// Returns the topology of the given CPUs. `root`: of the file system, for tests.
UsableCpus describe_cpus(const std::vector<int>& numbers, const std::filesystem::path& root);

// "0-3,8" → 0 1 2 3 8. An invalid character ends the list.
std::vector<int> parse_cpu_list(std::string_view text);

struct CpuDivision {
  std::vector<std::vector<int>> ranks;  // the CPUs of each rank, ascending; empty: not bound
  int threads = 1;  // of each rank; equal, because the order of sums may depend on it
};

// Divides the CPUs among local ranks: neighbours for each rank, in the order of the ranks; the
// first ranks get the remaining CPUs, for communication. With one rank, more ranks than CPUs, or
// without `bind`, no rank is bound.
CpuDivision divide_cpus(const UsableCpus& usable, int ranks, bool bind = true);

}  // namespace dltrain

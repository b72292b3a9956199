// Finds the CPUs of this process and their topology, and divides them among ranks.
//
// Sources: the affinity mask, the CPU quota of the control group (v1 and v2), and the topology in
// /sys. If the topology is missing, one NUMA node of single cores is assumed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dltrain {

struct Cpu {
  int number = 0;  // of the kernel
  int node = 0;    // NUMA node
  int package = 0, core = 0;
  bool operator==(const Cpu&) const = default;
};

struct UsableCpus {
  std::vector<Cpu> cpus = {};  // sorted by node, package, core
  // The quota of the control group, in CPUs; none: unlimited.
  std::optional<double> quota = {};

  // Returns the number of threads that can run at the same time, at least 1.
  int threads() const;
};

// Returns the CPUs of this process. `root`: of the file system, for tests.
UsableCpus find_usable_cpus(const std::filesystem::path& root = "/");
// Returns the topology of the given CPUs.
UsableCpus describe_cpus(const std::vector<int>& numbers, const std::filesystem::path& root);

// "0-3,8" → 0 1 2 3 8. An invalid character ends the list.
std::vector<int> parse_cpu_list(std::string_view text);

// The supported values of torchrun's --numa-binding.
enum class CpuBinding : uint8_t {
  exclusive,  // every rank has its own CPUs, of one NUMA node if possible
  node,       // the ranks of a NUMA node share its CPUs
  none,       // ranks use all CPUs of the launcher
};
// Throws Error(usage).
CpuBinding parse_cpu_binding(const std::string& text);

struct CpuDivision {
  std::vector<std::vector<int>> ranks;  // the CPUs of each rank, ascending; empty: not bound
  int threads = 1;  // of each rank; equal, because the order of sums may depend on it
};

// Divides the CPUs among local ranks. With `exclusive`, ranks are in the order of the CPUs;
// remaining CPUs go to the first ranks of their node, for communication. With one rank, or more
// ranks than CPUs, no rank is bound.
CpuDivision divide_cpus(const UsableCpus& usable, int ranks, CpuBinding binding);

// A set of CPUs to which a process can be bound.
class CpuMask {
 public:
  explicit CpuMask(const std::vector<int>& cpus);
  // Binds the calling thread and the threads that it starts. Does nothing if the set is empty. Can
  // be called between fork and exec. Returns false if the kernel refuses.
  bool apply() const;

 private:
  std::vector<unsigned long> bits_;  // in the format of sched_setaffinity
};

}  // namespace dltrain

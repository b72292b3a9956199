// Which CPUs this process may use, where they lie, and how ranks share them.
//
// What is read: the affinity mask, the CPU quota of the control group (v1 and v2), and the topology
// that Linux tells in /sys. What is missing there is taken as one node of single cores.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dltrain {

struct Cpu {
  int number = 0;  // as the kernel counts
  int node = 0;    // of memory (NUMA)
  int package = 0, core = 0;
  bool operator==(const Cpu&) const = default;
};

struct UsableCpus {
  std::vector<Cpu> cpus = {};  // by node, package, core: neighbours are near each other
  // CPUs' worth of time that the control group grants; none: all.
  std::optional<double> quota = {};

  // Threads that can run at once, at least 1.
  int threads() const;
};

// Of this process. `root`: of the file system, for tests.
UsableCpus find_usable_cpus(const std::filesystem::path& root = "/");
// The same for CPUs that are given.
UsableCpus describe_cpus(const std::vector<int>& numbers, const std::filesystem::path& root);

// "0-3,8" → 0 1 2 3 8; rubbish ends the list.
std::vector<int> parse_cpu_list(std::string_view text);

// torchrun's --numa-binding, as far as it means something here.
enum class CpuBinding : uint8_t {
  exclusive,  // every rank has CPUs of its own, within a node of memory where that comes out even
  node,       // ranks share the CPUs of the node of memory that they are dealt to
  none,       // ranks run where the launcher may
};
// Throws Error(usage).
CpuBinding parse_cpu_binding(const std::string& text);

struct CpuDivision {
  std::vector<std::vector<int>> ranks;  // the CPUs of each, ascending; empty: it is not bound
  int threads = 1;  // of each rank: all ranks have the same, or their sums might differ in bits
};

// Shares the CPUs among so many local ranks. With `exclusive`, ranks keep to the order of the CPUs;
// CPUs that are left over go to the first ranks of their node, whose communication they serve. With
// more ranks than CPUs, or one rank, nothing is bound.
CpuDivision divide_cpus(const UsableCpus& usable, int ranks, CpuBinding binding);

// CPUs that a process is bound to.
class CpuMask {
 public:
  explicit CpuMask(const std::vector<int>& cpus);
  // Binds the calling thread and those that it starts; without CPUs it does nothing. May be called
  // between fork and exec. False when the kernel refuses.
  bool apply() const;

 private:
  std::vector<unsigned long> bits_;  // as sched_setaffinity takes them
};

}  // namespace dltrain

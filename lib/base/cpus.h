// The CPUs that this process may use.
#pragma once

#include <vector>

namespace dltrain {

// By its affinity mask (taskset, Slurm, `dltrain launch`), ascending; at least one.
std::vector<int> bound_cpus();

// Threads worth starting: how many those are.
int bound_cpu_count();

// The share of one of `processes` on this machine: its CPUs / processes, at least 1, and no more
// than this process is bound to.
int cpu_share(int processes);

}  // namespace dltrain

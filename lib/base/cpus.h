// The CPUs that this process may use.
#pragma once

#include <vector>

namespace dltrain {

// Returns the CPUs of the affinity mask (taskset, Slurm, `dltrain launch`), ascending; at least
// one.
std::vector<int> bound_cpus();

// Returns their number, a good number of threads.
int bound_cpu_count();

// Returns the share of one of `processes` on this machine: its CPUs / processes, at least 1 and at
// most bound_cpu_count().
int cpu_share(int processes);

}  // namespace dltrain

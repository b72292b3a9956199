#include "base/cpus.h"

#include <algorithm>
#include <thread>

#include <sched.h>

namespace dltrain {

std::vector<int> bound_cpus() {
  constexpr int kMax = 1 << 16;
  // The kernel's mask may be longer than a cpu_set_t.
  for (int most = 1024; most <= kMax; most *= 2) {
    std::vector<unsigned long> bits(static_cast<size_t>(most) / (8 * sizeof(unsigned long)));
    auto* set = reinterpret_cast<cpu_set_t*>(bits.data());
    const size_t bytes = bits.size() * sizeof(bits[0]);
    if (sched_getaffinity(0, bytes, set) != 0) continue;
    std::vector<int> out;
    for (int cpu = 0; cpu < most; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) out.push_back(cpu);
    }
    return out;
  }
  return {0};
}

int bound_cpu_count() {
  return std::max(1, static_cast<int>(bound_cpus().size()));
}

int cpu_share(int processes) {
  const int cpus = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return std::min(std::max(1, cpus / std::max(processes, 1)), bound_cpu_count());
}

}  // namespace dltrain

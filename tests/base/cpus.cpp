// The CPUs that a process may use follow its affinity mask.
#include "base/cpus.h"

#include <algorithm>
#include <thread>

#include <sched.h>

#include "catch.h"

using namespace dltrain;

TEST_CASE("a process has the CPUs that it is bound to, and its ranks share those of the machine") {
  const std::vector<int> all = bound_cpus();
  REQUIRE(!all.empty());
  CHECK(std::is_sorted(all.begin(), all.end()));
  CHECK(bound_cpu_count() == static_cast<int>(all.size()));
  CHECK(cpu_share(1) <= bound_cpu_count());
  CHECK(cpu_share(1 << 20) == 1);
  CHECK(cpu_share(2) == std::max(1, cpu_share(1) / 2));
  CHECK(cpu_share(0) == cpu_share(1));
  std::thread([&] {  // a thread of its own: the binding ends with it
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(all.back()), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return;
    CHECK(bound_cpus() == std::vector{all.back()});
    CHECK(bound_cpu_count() == 1);
    CHECK(cpu_share(1) == 1);
  })
      .join();
}

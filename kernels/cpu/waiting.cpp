#include "cpu/waiting.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <pthread.h>
#include <sys/resource.h>

#include "base/signals.h"
#include "cpu/parallel.h"

namespace dltrain {
namespace {

#ifdef _OPENMP
constexpr std::chrono::milliseconds kLook{20};
// Involuntary context switches between two checks that indicate a competing program, for which the
// kernel switches every few milliseconds.
constexpr long kTaken = 2;
constexpr int kCalmLooks = 50;

long preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

struct Load {
  int used;  // threads
  std::atomic<bool> taken = false;
};

// libgomp's threads spin for milliseconds before they sleep: fastest on idle cores and slowest on
// busy ones, where a spinning thread takes the core from the thread that it waits for. With more
// threads than cores libgomp sleeps almost at once, which it checks in every wait. So this idle
// team adds one thread too many while cores are busy. It ends with its owner thread.
void* keep_one_thread_too_many(void* of) {
  const auto* load = static_cast<const Load*>(of);
  const int team = std::max(2, omp_get_num_procs() - load->used + 2);
#pragma omp parallel num_threads(team)
  { [[maybe_unused]] volatile int nothing = omp_get_thread_num(); }
  load->taken.wait(true);
  return nullptr;
}

// Does not allocate.
void watch_load(int used) {
  Load load{.used = used};
  pthread_t team{};
  int calm = 0;
  for (long before = preemptions();;) {
    std::this_thread::sleep_for(kLook);
    const long now = preemptions();
    calm = now - before >= kTaken ? 0 : calm + 1;
    before = now;
    if (calm == 0 && !load.taken) {
      load.taken = true;
      load.taken = pthread_create(&team, nullptr, keep_one_thread_too_many, &load) == 0;
    } else if (calm >= kCalmLooks && load.taken) {
      load.taken = false;
      load.taken.notify_one();
      pthread_join(team, nullptr);
    }
  }
}
#endif

}  // namespace

void adapt_waiting_to_load() {
#ifdef _OPENMP
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (thread_count() == 1) return;
  [[maybe_unused]] static const bool started = [] {
    const BlockSignals block;
    std::thread(watch_load, thread_count()).detach();
    return true;
  }();
#endif
}

}  // namespace dltrain

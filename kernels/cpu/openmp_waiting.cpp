#include "cpu/openmp_waiting.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "base/signals.h"
#include "cpu/parallel.h"

namespace dltrain {
namespace {

#ifdef _OPENMP
constexpr std::chrono::milliseconds kInterval{100};
constexpr int kCalmIntervals = 10;

// Processor time in seconds on the cores that this process may use, since some time in the past.
struct CoreTime {
  double busy = 0;  // of all programs, and of other virtual machines
  double own = 0;
};

// Returns false if the system does not tell. Does not allocate.
bool read_core_time(const cpu_set_t& cores, CoreTime& time) {
  static char text[1 << 17];  // used by one thread; a line has about 100 bytes
  const FileDescriptor file(::open("/proc/stat", O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  size_t size = 0;
  for (ssize_t got = 1; got > 0 && size + 1 < sizeof text; size += static_cast<size_t>(got)) {
    got = std::max<ssize_t>(0, read(file.get(), text + size, sizeof text - 1 - size));
  }
  text[size] = '\0';
  long ticks = 0;
  for (const char* line = text; std::strncmp(line, "cpu", 3) == 0;) {
    char* at = nullptr;
    const long core = line[3] == ' ' ? -1 : std::strtol(line + 3, &at, 10);
    for (int column = 0; core >= 0 && column < 8; ++column) {
      const long value = std::strtol(at, &at, 10);
      const bool idle = column == 3 || column == 4;  // "idle" and "iowait"
      if (!idle && core < CPU_SETSIZE && CPU_ISSET(static_cast<size_t>(core), &cores)) {
        ticks += value;
      }
    }
    line = std::strchr(line, '\n');
    if (line == nullptr) return false;  // more cores than `text` has room for
    ++line;
  }
  timespec own{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  time = {.busy = static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK)),
          .own = static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec)};
  return true;
}

struct LoadState {
  int used;  // threads
  std::atomic<bool> contended = false;
};

// libgomp's threads spin for milliseconds before they sleep: fastest on idle cores and slowest on
// busy ones, where a spinning thread takes the core from the thread that it waits for. With more
// threads than cores libgomp sleeps almost at once, which it checks in every wait. So this idle
// team adds one thread too many while cores are busy. It ends with its owner thread.
void* run_oversubscribed_team(void* of) {
  const auto* load = static_cast<const LoadState*>(of);
  const int team = std::max(2, omp_get_num_procs() - load->used + 2);
#pragma omp parallel num_threads(team)
  { [[maybe_unused]] volatile int nothing = omp_get_thread_num(); }
  load->contended.wait(true);
  return nullptr;
}

// Does not allocate.
void watch_load(int used) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return;
  LoadState load{.used = used};
  pthread_t team{};
  int calm = 0;
  // Times of /proc/stat are rounded to ticks, for each core.
  const double tolerance = 0.2 + 0.05 * used;
  CoreTime before;
  if (!read_core_time(cores, before)) return;
  CoreTime now = before;
  for (auto then = std::chrono::steady_clock::now();; before = now) {
    std::this_thread::sleep_for(kInterval);
    // Not return: that would end `load`, on which the team may still wait.
    if (!read_core_time(cores, now)) continue;
    const auto time = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(time - std::exchange(then, time)).count();
    const double others = ((now.busy - before.busy) - (now.own - before.own)) / seconds;
    const bool contended = others > CPU_COUNT(&cores) - used + tolerance;
    calm = contended ? 0 : calm + 1;
    if (contended && !load.contended) {
      load.contended = true;
      load.contended = pthread_create(&team, nullptr, run_oversubscribed_team, &load) == 0;
    } else if (calm >= kCalmIntervals && load.contended) {
      load.contended = false;
      load.contended.notify_one();
      pthread_join(team, nullptr);
    }
  }
}
#endif

}  // namespace

void adapt_openmp_waiting() {
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

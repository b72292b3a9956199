#include "base/stop.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <initializer_list>

#include <pthread.h>
#include <unistd.h>

#include "base/error.h"
#include "base/signals.h"

namespace dltrain {
namespace {

volatile std::sig_atomic_t stop_flag = 0;
volatile std::sig_atomic_t save_flag = 0;
std::atomic<bool> stoppable = false;

int64_t monotonic_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // may be called in a signal handler
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

std::atomic<int64_t> first_stop = 0;  // ms; of the first signal

void on_signal(int signal) {
  constexpr int64_t kSameRequest = 1000;
  const int64_t now = monotonic_milliseconds();
  if (stop_flag == 0) {
    first_stop = now;
    stop_flag = signal;
  } else if (now - first_stop > kSameRequest) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // delivered when the handler returns
  }
}

void on_save_signal(int) {
  save_flag = 1;
}

void change_mask(int how) {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : kRunSignals) sigaddset(&signals, signal);
  pthread_sigmask(how, &signals, nullptr);
}

// Handlers run on this thread only. Matrix products of oneDNN before 3.11.2 use the stack pointer
// as an ordinary register (oneDNN issue 4845), so a handler that interrupts one overwrites the
// heap.
void start_signal_thread() {
  static bool started = false;
  if (started) return;
  started = true;
  change_mask(SIG_BLOCK);  // threads started later inherit this
  pthread_attr_t small;    // the default stack takes 8 MiB of a limit on addresses (ulimit -v)
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, size_t{128} << 10);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  const auto wait = [](void*) -> void* {
    pthread_setname_np(pthread_self(), "signals");
    change_mask(SIG_UNBLOCK);
    for (;;) pause();
  };
  pthread_t thread{};
  const int error = pthread_create(&thread, &small, wait, nullptr);
  pthread_attr_destroy(&small);
  if (error != 0) fail(ExitCode::memory, "cannot start a thread: {}", std::strerror(error));
}

}  // namespace

void install_stop_handlers() {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (stop_flag != 0) break;  // a signal was received: the next one ends the process
    if (signal == SIGHUP && is_ignored(signal)) continue;
    struct sigaction action {};
    action.sa_handler = on_signal;
    sigaction(signal, &action, nullptr);
  }
  // Training continues if the reader of its output ends.
  std::signal(SIGPIPE, SIG_IGN);
  struct sigaction save {};
  save.sa_handler = on_save_signal;
  save.sa_flags = SA_RESTART;
  for (int signal : {SIGUSR1, SIGUSR2}) sigaction(signal, &save, nullptr);
  start_signal_thread();
}

void release_stop_signals() {
  change_mask(SIG_UNBLOCK);
}

bool take_save_request() {
  if (save_flag == 0) return false;
  save_flag = 0;
  return true;
}

int stop_signal() {
  return stop_flag;
}

StoppableWork::StoppableWork() {
  stoppable = true;
}

StoppableWork::~StoppableWork() {
  stoppable = false;
}

void check_stop() {
  const int signal = stop_flag;
  if (signal == 0 || !stoppable) return;
  fail(ExitCode::stopped, "stopped by signal {} (SIG{}) before the first step", signal,
       sigabbrev_np(signal));
}

}  // namespace dltrain

// The signals that a run handles, and a guard that blocks them in helper threads, so that they
// reach the main thread.
#pragma once

#include <csignal>

namespace dltrain {

// The first three end a run, the others request a checkpoint; launchers forward them.
inline constexpr int kRunSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

// Returns true if a signal is ignored, as nohup does with SIGHUP. Async-signal-safe.
inline bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// Blocks every signal for the calling thread during its lifetime; threads created in the meantime
// inherit this permanently.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace dltrain

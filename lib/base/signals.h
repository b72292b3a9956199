// The signals that a run takes, and what keeps them away from helper threads, so that they reach
// the thread that handles them.
#pragma once

#include <csignal>

namespace dltrain {

// End a run in order (the first three) or ask it for a checkpoint; launchers pass them on.
inline constexpr int kRunSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

// As nohup leaves SIGHUP. May be called between fork and exec.
inline bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// Blocks every signal for the calling thread while it lives; threads created meanwhile inherit that
// for good.
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

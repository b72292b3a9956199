// The signals that a run takes, and what keeps them away from helper threads, so that they reach
// the thread that handles them.
#pragma once

#include <csignal>

#include <sys/types.h>

namespace dltrain {

// End a run in order (the first three) or ask it for a checkpoint; launchers pass them on.
inline constexpr int kRunSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
// What a launcher gives a SIGTERM to carry that only ends ranks whose peer has failed.
inline constexpr int kFailureElsewhere = 0x646c74;

// SIGTERM to a rank because another one has failed, which is no wish that this one ends: the rank
// can tell them apart.
inline void signal_failure(pid_t pid) {
  sigval value{};
  value.sival_int = kFailureElsewhere;
  sigqueue(pid, SIGTERM, value);
}
inline bool tells_of_failure(const siginfo_t& info) {
  return info.si_code == SI_QUEUE && info.si_value.sival_int == kFailureElsewhere;
}

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

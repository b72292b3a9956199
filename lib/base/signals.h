// Keeps signals away from helper threads, so that they reach the thread that handles them.
#pragma once

#include <csignal>

namespace dltrain {

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

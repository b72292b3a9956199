// Signals as bytes on a descriptor, for a loop that polls.
#pragma once

#include <csignal>

#include "comm/socket.h"

namespace dltrain {

// While this lives SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD are taken through the
// descriptor, and SIGPIPE is ignored. Make it in the main thread before any other thread: the
// signals must be blocked in all of them.
class SignalSource {
 public:
  SignalSource();
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  int descriptor() const { return descriptor_.get(); }
  // The next signal, 0 when there is none.
  int take();
  // How often SIGINT and SIGTERM have been taken.
  int interruptions() const { return interruptions_; }

 private:
  sigset_t mask_before_;
  struct sigaction pipe_before_ {};
  FileDescriptor descriptor_;
  int interruptions_ = 0;
};

}  // namespace dltrain

// Signals as bytes on a descriptor, for a loop that polls.
#pragma once

#include <csignal>
#include <deque>

#include "comm/socket.h"

namespace dltrain {

// While this lives SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD are taken through the
// descriptor, and SIGPIPE is ignored. SIGHUP that was ignored before (nohup) stays so. Make it in
// the main thread before any other thread: the signals must be blocked in all of them.
class SignalSource {
 public:
  SignalSource();
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  int descriptor() const { return descriptor_.get(); }
  // The next signal, 0 when there is none.
  int take();
  // How often SIGINT, SIGTERM and SIGHUP have come; take() still gives those that it has not given.
  int interruptions();
  // The first of them, 0 when there was none.
  int first_interruption() const { return first_interruption_; }

 private:
  void read_all();

  sigset_t mask_before_;
  FileDescriptor descriptor_;
  std::deque<int> waiting_;  // read, but not taken
  int interruptions_ = 0, first_interruption_ = 0;
};

// Whether a signal asks for an end: SIGINT, SIGTERM and SIGHUP.
bool is_interruption(int signal);

// Until a SignalSource is made: an interruption ends the process at once with code 75, since there
// is nothing to be saved yet, and SIGUSR1 and SIGUSR2 do nothing.
void end_on_interruption();

}  // namespace dltrain

// Signals through a descriptor, for a poll loop.
#pragma once

#include <csignal>
#include <deque>

#include "comm/socket.h"

namespace dltrain {

// While it exists, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD arrive through the
// descriptor, and SIGPIPE is ignored. SIGHUP stays ignored if it was before (nohup). Construct it
// in the main thread before other threads exist: the signals must be blocked in all of them.
class SignalSource {
 public:
  SignalSource();
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  int descriptor() const { return descriptor_.get(); }
  // Returns the next signal, or 0.
  int take();
  // Returns the number of SIGINT, SIGTERM and SIGHUP so far, including those not yet taken.
  int interruptions();
  // Returns the first of them, or 0.
  int first_interruption() const { return first_interruption_; }

 private:
  void read_all();

  sigset_t mask_before_;
  FileDescriptor descriptor_;
  std::deque<int> waiting_;  // read, but not taken
  int interruptions_ = 0, first_interruption_ = 0;
};

// Returns true for SIGINT, SIGTERM and SIGHUP.
bool is_interruption(int signal);

// Until a SignalSource exists, an interruption ends the process at once with code 75, because there
// is nothing to save yet, and SIGUSR1 and SIGUSR2 are ignored.
void end_on_interruption();

}  // namespace dltrain

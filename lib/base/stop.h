// Being asked to stop or to save: SIGINT, SIGTERM and SIGHUP set a flag that long work looks at
// between its parts; a second one ends the process at once. SIGUSR1 and SIGUSR2 ask for a
// checkpoint; training goes on. SIGHUP that is ignored (nohup) stays so.
#pragma once

namespace dltrain {

// Installs the handlers (process-wide, once is enough) and releases the signals.
void install_stop_handlers();
// A launcher blocks these signals in its ranks until they have handlers. For those that have none.
void release_stop_signals();
// The signal that came first, or 0.
int stop_signal();
// Whether SIGUSR1 or SIGUSR2 came since the last call.
bool take_save_request();
// For tests and for embedding: as if `signal` had come; 0 clears it.
void request_stop(int signal);

// While it lives, there is nothing to save and check_stop() throws. One at a time.
class StoppableWork {
 public:
  StoppableWork();
  ~StoppableWork();
  StoppableWork(const StoppableWork&) = delete;
  StoppableWork& operator=(const StoppableWork&) = delete;
};
// Whether a signal has come, during StoppableWork; from any thread.
bool stop_asked();
// For loops that may take long: throws Error(stopped) where one has.
void check_stop();

}  // namespace dltrain

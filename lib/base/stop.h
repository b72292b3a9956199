// Requests to stop or to save. SIGINT, SIGTERM and SIGHUP set a flag that long operations poll; a
// second signal ends the process at once, unless it comes within a second: Slurm and systemd send
// SIGTERM to all processes of a job, and a launcher passes its own on to the ranks. SIGUSR1 and
// SIGUSR2 request a checkpoint while training continues. An ignored SIGHUP (nohup) stays ignored.
#pragma once

namespace dltrain {

// Installs the handlers (process-wide, once is enough). They run on a thread of their own; the
// calling thread and those that it starts later block these signals, so system calls are not
// interrupted.
void install_stop_handlers();
// For commands without handlers: unblocks these signals, which a launcher blocks in its ranks.
void release_stop_signals();
// Returns the first signal that was received, or 0.
int stop_signal();
// Returns true if SIGUSR1 or SIGUSR2 was received since the last call.
bool take_save_request();

// Marks an operation without state to save: during its lifetime check_stop() throws. One at a time.
class StoppableWork {
 public:
  StoppableWork();
  ~StoppableWork();
  StoppableWork(const StoppableWork&) = delete;
  StoppableWork& operator=(const StoppableWork&) = delete;
};
// For long loops: throws Error(stopped) if a signal was received and StoppableWork is in progress.
// Any thread may call it.
void check_stop();

}  // namespace dltrain

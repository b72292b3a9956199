// Being asked to stop or to save: SIGINT and SIGTERM set a flag that the loop looks at once a step;
// a second one ends the process at once. SIGUSR1 asks for a checkpoint; training goes on.
#pragma once

namespace dltrain {

// Installs the handlers (process-wide, once is enough).
void install_stop_handlers();
// The signal that came first, or 0.
int stop_signal();
// Whether SIGUSR1 came since the last call.
bool take_save_request();
// For tests and for embedding: as if `signal` had come; 0 clears it.
void request_stop(int signal);

}  // namespace dltrain

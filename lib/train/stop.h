// Being asked to stop: SIGINT and SIGTERM set a flag that the loop looks at once a step; a second
// one ends the process at once.
#pragma once

namespace dltrain {

// Installs the handlers (process-wide, once is enough).
void install_stop_handlers();
// The signal that came first, or 0.
int stop_signal();
// For tests and for embedding: as if `signal` had come; 0 clears it.
void request_stop(int signal);

}  // namespace dltrain

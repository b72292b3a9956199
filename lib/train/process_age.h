// How long this process has been running.
#pragma once

namespace dltrain {

// Milliseconds since the kernel started the process (resolution: one clock tick, 10 ms).
double process_age_ms();
// Greatest resident set so far, MiB.
double peak_memory_mib();

}  // namespace dltrain

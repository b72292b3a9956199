// The age and the peak memory of this process.
#pragma once

namespace dltrain {

// Milliseconds since the kernel started the process (resolution: one clock tick, 10 ms).
double process_age_ms();
// The greatest resident set size so far, in MiB.
double peak_memory_mib();

}  // namespace dltrain

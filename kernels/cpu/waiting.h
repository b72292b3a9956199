// How OpenMP's threads wait for each other.
#pragma once

namespace dltrain {

// From the first call on, threads that wait do so asleep while other programs take this process's
// cores, and spinning while they do not. Results do not depend on it.
void adapt_waiting_to_load();

}  // namespace dltrain

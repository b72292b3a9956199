// Waiting policy of OpenMP's threads.
#pragma once

namespace dltrain {

// From the first call on, waiting threads sleep while other programs use this process's cores, and
// spin otherwise. Results do not depend on it.
void adapt_openmp_waiting();

}  // namespace dltrain

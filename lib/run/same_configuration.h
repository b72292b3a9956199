// Checks that all ranks of a run were started with the same configuration.
#pragma once

#include <string>

#include "comm/store.h"

namespace dltrain {

// Every rank calls it with its resolved configuration as YAML. Compares hashes through the store
// and throws Error(usage) with the differing keys on every rank that differs from rank 0.
void check_same_configuration(StoreClient& store, int rank, int world,
                              const std::string& configuration);

}  // namespace dltrain

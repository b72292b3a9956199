// Whether all ranks of a run were started alike.
#pragma once

#include <string>

#include "comm/store.h"

namespace dltrain {

// Every rank calls it with its resolved configuration as YAML. Compares hashes through the store;
// where they differ, throws Error(usage) that names the differing keys, on every rank that differs
// from rank 0.
void check_same_configuration(StoreClient& store, int rank, int world,
                              const std::string& configuration);

}  // namespace dltrain

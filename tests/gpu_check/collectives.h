// Messages between GPUs, as far as one GPU can show them.
#pragma once

#include <string>
#include <vector>

#include "device/engine.h"

namespace dltrain {

struct CollectiveCheck {
  std::string backend, operation, dtype, fault;  // fault: empty where it is right
};

// Every operation in a group of one rank, by the vendor's library. Empty where the engine has none;
// `why` then says so.
std::vector<CollectiveCheck> check_collectives(const Engine& engine, Device& device,
                                               std::string& why);

}  // namespace dltrain

// Ranks that do not exist, for plans.
#pragma once

#include "device/collectives.h"

namespace dltrain {

// Returns the group of `world` such ranks, which lives as long as the program; nullptr for one
// rank. A plan needs its size only; Error(internal) if it is used. Any thread may call it.
Collectives* unconnected_ranks(int world);

}  // namespace dltrain

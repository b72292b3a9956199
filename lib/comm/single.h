// The group of one rank: reductions leave the data as they are, gathers and exchanges copy it.
#pragma once

#include <memory>

#include "device/collectives.h"
#include "device/device.h"

namespace dltrain {

// `device` must outlive the group; its copy() is used where input and output differ, on the stream
// given as `after`. Nothing else is done.
std::unique_ptr<Collectives> make_single(Device& device);

}  // namespace dltrain

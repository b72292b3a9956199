// The group of one rank: reductions leave the data unchanged, other operations copy it.
#pragma once

#include <memory>

#include "device/collectives.h"
#include "device/device.h"

namespace dltrain {

// `device` must outlive the group. If input and output differ, the data is copied with
// device.copy() on the stream `after`.
std::unique_ptr<Collectives> make_single(Device& device);

}  // namespace dltrain

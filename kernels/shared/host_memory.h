// The Device of engines that compute on the host (CPU and reference): ordinary memory, work done
// before the call returns, nothing to capture.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

namespace dltrain {

// Memory comes zeroed from anonymous maps, aligned to 64 bytes and more; blocks of 4 MiB and above
// are aligned to 2 MiB and asked to be huge pages. `backend` names the engine in DeviceProperties.
std::unique_ptr<Device> make_host_device(const char* backend, const char* libraries,
                                         std::string architecture = {});

}  // namespace dltrain

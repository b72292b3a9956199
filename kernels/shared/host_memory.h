// The Device of engines that compute on the host (CPU and reference): ordinary memory, work done
// before the call returns, nothing to capture.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

namespace dltrain {

// Memory is zeroed, from anonymous maps, and aligned to at least 64 bytes; blocks from 4 MiB on are
// aligned to 2 MiB and request huge pages. `backend` names the engine in DeviceProperties, of which
// `on_host` is false for an emulated GPU.
std::unique_ptr<Device> make_host_device(const char* backend, const char* libraries,
                                         std::string architecture = {}, bool on_host = true);

}  // namespace dltrain

// The state of a GPU by NVML (libnvidia-ml.so.1, part of the driver), which is opened when it is
// asked for; its header is not needed.
#pragma once

#include <memory>
#include <string>

#include "device/sensor.h"

namespace dltrain {

// The GPU at a PCI bus address as CUDA names it ("0000:3b:00.0"). nullptr where NVML is not there
// or does not know the GPU: `why` is then one line.
std::unique_ptr<DeviceSensor> make_nvml_sensor(const std::string& pci_bus, std::string& why);

}  // namespace dltrain

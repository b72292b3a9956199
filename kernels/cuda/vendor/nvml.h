// The state of a GPU by NVML (libnvidia-ml.so.1, part of the driver), which is opened on demand;
// its header is not needed.
#pragma once

#include <memory>
#include <string>

#include "device/sensor.h"

namespace dltrain {

// Returns the sensor of the GPU at a PCI bus address as CUDA names it ("0000:3b:00.0"), or nullptr
// if NVML is missing or does not know the GPU: `why` is then one line.
std::unique_ptr<DeviceSensor> make_nvml_sensor(const std::string& pci_bus, std::string& why);

}  // namespace dltrain

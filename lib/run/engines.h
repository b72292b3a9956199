// The choice of the engine and device of a run.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/engine.h"
#include "experiment/experiment.h"
#include "passes/lower_recurrent.h"

namespace dltrain {

// The engines that are linked into the program; passed by apps/, because lib/ does not include
// kernels.
struct Engines {
  const Engine* cpu = nullptr;
  const Engine* reference = nullptr;  // float64, for checks
};

struct SelectedDevice {
  const Engine* engine = nullptr;
  std::unique_ptr<Device> device;
  std::string note;  // a message if `auto` fell back to the CPU, else empty
};

// `wanted`: auto, cpu, cuda or cuda:<index>. Without an index rank `local_rank` of a machine uses
// the GPU with this number. Throws Error(device) if a requested GPU cannot be used.
SelectedDevice choose_device(const std::string& wanted, const Engines& engines, int local_rank);

// Logs the device's notices, those so far and later ones, as warnings.
void log_notices(Device& device);

// Throws ConfigError at the key of `precision` if the device has no such arithmetic.
void check_compute(const PrecisionConfig& precision, const Device& device);

// The kept bytes of recurrent networks (ops/kernel.h) for the engine that `open` returns; `open` is
// called for the first network.
KeptBytes recurrent_kept_bytes(std::function<const SelectedDevice&()> open);

}  // namespace dltrain

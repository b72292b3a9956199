// Which engine and device a run uses.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/engine.h"
#include "passes/fuse_recurrent.h"

namespace dltrain {

// The engines that are linked into the program; handed down from apps/, since lib/ knows no
// kernels.
struct Engines {
  const Engine* cpu = nullptr;
  const Engine* reference = nullptr;  // float64, for checks
};

struct ChosenDevice {
  const Engine* engine = nullptr;
  std::unique_ptr<Device> device;
  std::string note;  // one line for the user where `auto` fell back to the CPU, else empty
};

// `wanted`: auto, cpu, cuda or cuda:<index>. Without an index rank `local_rank` of a machine takes
// the GPU of that number. Throws Error(device) when a GPU was asked for and cannot be used.
ChosenDevice choose_device(const std::string& wanted, const Engines& engines, int local_rank);

// What the engine that `open` gives says of recurrent networks (ops/kernel.h); it is asked for one
// when the first network is met.
KeptBytes recurrent_kept_bytes(std::function<const ChosenDevice&()> open);

}  // namespace dltrain

// A stand-in for a GPU that is not there: plans are prepared for it as for the CUDA engine, and
// nothing can be allocated or run on it.
#pragma once

#include <memory>

#include "compile/gpu.h"
#include "device/engine.h"

namespace dltrain {

// Has a kernel for every op. The workspaces of vendor libraries are taken at their limits.
const Engine& described_engine();
std::unique_ptr<Device> make_described_device(const Gpu& gpu);

}  // namespace dltrain

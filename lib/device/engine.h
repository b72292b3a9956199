// One compute engine: how to open its devices, and its table of kernels. The CPU and reference
// engines are linked in; the CUDA engine is a shared object found beside the executable, in ../lib
// or in a Python wheel, opened only when a GPU is wanted and a driver is present.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace dltrain {

struct KernelRow;          // ops/kernel.h
struct VendorCollectives;  // device/collective_backend.h

// Raised whenever this struct or anything reachable from it changes its layout or meaning.
inline constexpr uint32_t kEngineAbi = 12;

struct Engine {
  uint32_t abi = kEngineAbi;
  const char* name = "";               // "cpu"
  const KernelRow* kernels = nullptr;  // explicit table, first match wins
  size_t kernel_count = 0;
  int (*device_count)() = nullptr;
  // Returns in one line why device_count() is 0 (the driver is too old, a GPU does not answer).
  std::string (*problem)() = nullptr;
  // Throws Error(device) when device `index` cannot be used.
  std::unique_ptr<Device> (*open)(int index) = nullptr;
  // The vendor's library for several ranks; may be nullptr.
  const VendorCollectives* collectives = nullptr;
  // Returns the libraries that it was built with: "CUDA 13.0, cuBLASLt 13.1.0, cuDNN 9.19.0, …".
  std::string (*libraries)() = nullptr;
};

// The plug-in's only exported symbol: extern "C" const dltrain::Engine* dltrain_engine(uint32_t
// abi). Returns nullptr when it was built for another ABI.
inline constexpr const char* kEngineSymbol = "dltrain_engine";
using EngineEntry = const Engine* (*)(uint32_t abi);

// Opens the plug-in `name` (for "cuda": libdltrain_cuda.so). Returns nullptr and fills `why` with
// one line for the user if there is no driver, no plug-in or no usable device, or if the plug-in
// was built for another version. Without a driver the plug-in (and with it CUDA) is not loaded.
// With Driver::not_needed only its tables can be read (`list ops`); no device can be opened.
enum class Driver : uint8_t { needed, not_needed };
const Engine* load_engine_plugin(const std::string& name, std::string& why,
                                 Driver driver = Driver::needed);
// Returns true if this machine has an NVIDIA GPU and its driver, whether the plug-in exists or not.
bool has_nvidia_gpu();

}  // namespace dltrain

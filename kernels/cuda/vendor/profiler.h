// Measures the time of a GPU's work by CUPTI, which records every kernel and copy, or, where that
// is missing, by events around each call. Both open an NVTX range per call for external tools
// (Nsight Systems); without such a tool a range costs a few nanoseconds.
//
// Nothing is created without a profiler, so that other steps have no overhead.
#pragma once

#include <memory>
#include <string>

#include "device/profiler.h"

namespace dltrain {

// Uses CUPTI if it can be opened, else events; method() returns which, and why.
std::unique_ptr<DeviceProfiler> make_cuda_profiler();

// Returns nullptr if CUPTI (libcupti.so, part of the CUDA toolkit) is missing or fails: `why` is
// then one line. At most one may exist in a process.
std::unique_ptr<DeviceProfiler> make_cupti_profiler(std::string& why);

}  // namespace dltrain

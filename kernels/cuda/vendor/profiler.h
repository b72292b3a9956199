// How the time of a GPU's work is taken: by CUPTI, which sees every kernel and copy, or, where that
// is missing, by events around each call. Both open an NVTX range for a call, which outside tools
// (Nsight Systems) show; without such a tool a range costs a few nanoseconds.
//
// None of this is made unless it is asked for, so a step that nobody profiles is what it was.
#pragma once

#include <memory>
#include <string>

#include "device/profiler.h"

namespace dltrain {

// CUPTI where it can be opened, else events; method() says which, and why.
std::unique_ptr<DeviceProfiler> make_cuda_profiler();

// nullptr where CUPTI (libcupti.so, part of the CUDA toolkit) is missing or refuses: `why` is then
// one line. One at a time in a process.
std::unique_ptr<DeviceProfiler> make_cupti_profiler(std::string& why);

// Events before and behind each call. What lies between them counts as the call's, also where the
// GPU waited for a launch. `why`: there is no better way; part of method().
std::unique_ptr<DeviceProfiler> make_event_profiler(const std::string& why);

}  // namespace dltrain

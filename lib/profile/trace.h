// A recording as a Chrome trace.
#pragma once

#include <cstdint>
#include <string>

#include "profile/summary.h"

namespace dltrain {

// The events of one rank (telemetry/chrome_trace.h), a process of the trace:
//
//   training thread    steps; in them forward, backward, update and the parts (data, inputs, …); in
//                      the former the kernel calls with shapes, FLOP and bytes
//   data worker w      the batches that it fills
//   device stream s    activities of the device, with the call that queued them; not on the CPU
//   communication      operations between ranks, from their start to the end of their wait
//
// `origin`: time 0 of the trace, in nanoseconds of this process's clock.
std::string trace_events(const Recording& recording, const MachineLimits& limits, int rank,
                         int64_t origin);

}  // namespace dltrain

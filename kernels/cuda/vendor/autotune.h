// Chooses among algorithms by timing them on the device when a plan is made. Choices are stored
// (vendor/code_cache.h), so that later runs on such a device reuse them without timing. With
// several ranks the first one chooses for all.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cuda/vendor/device.h"

namespace dltrain {

// Limits of timing.
struct TuningLimits {
  size_t candidates;      // per choice; 1: no timing, uses the library's first
  double choice_seconds;  // for one choice, including creation of its candidates
  double total_seconds;   // for all choices of a device
};
TuningLimits tuning_limits(Autotune mode);

// Returns the fastest of `candidates` (at least one). run(i, stream) queues candidate i, or returns
// false if it fails. Each runs for some milliseconds after an untimed first run, until the time
// limit of the choice. Ties go to the earlier one. Returns nullopt if all fail, or the device's
// time limit is reached.
std::optional<size_t> fastest(CudaDevice& device, size_t candidates,
                              const std::function<bool(size_t, Stream&)>& run);

// Returns the result of make() for `key`: stored from this or an earlier process for such a device,
// these libraries and this mode, or with several ranks that of rank 0. Empty without time or memory
// for timing, which is not stored for later runs.
std::string tuned_choice(CudaDevice& device, const std::string& key,
                         const std::function<std::string()>& make);

}  // namespace dltrain

// Choosing among algorithms by timing them on the device, when a plan is made. What was chosen is
// kept (vendor/code_cache.h), so that later runs on such a device choose the same without timing;
// of several ranks the first one chooses for all.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cuda/vendor/device.h"

namespace dltrain {

// How much is timed.
struct TuningLimits {
  size_t candidates;      // of one choice; 1: nothing is timed, the library's first is taken
  double choice_seconds;  // for one choice, making its candidates included
  double total_seconds;   // for all choices of a device
};
TuningLimits tuning_limits(Autotune mode);

// The fastest of `candidates` (at least one), which run(i, stream) queues, or refuses by returning
// false. Each is run a few times after a first time that does not count, for some milliseconds,
// until the time of the choice is over. A tie goes to the earlier one. Nothing where all refuse, or
// the time of the device is over.
std::optional<size_t> fastest(CudaDevice& device, size_t candidates,
                              const std::function<bool(size_t, Stream&)>& run);

// What make() returned when this process, or one before it, asked for `key` on such a device with
// these libraries and this mode, or with several ranks on rank 0. Empty where there was no time or
// no memory for timing: that is not kept for later runs.
std::string tuned_choice(CudaDevice& device, const std::string& key,
                         const std::function<std::string()>& make);

}  // namespace dltrain

// Choosing among algorithms by timing them on the device, when a plan is made. What was chosen is
// kept (vendor/code_cache.h), so that later runs on such a device choose the same without timing.
#pragma once

#include <functional>
#include <string>

#include "cuda/vendor/device.h"

namespace dltrain {

// The fastest of `candidates` (at least one), which run(i, stream) queues, or refuses by returning
// false. Each is run a few times after a first time that does not count, for some milliseconds.
// A tie goes to the earlier one; where all refuse, 0.
size_t fastest(CudaDevice& device, size_t candidates,
               const std::function<bool(size_t, Stream&)>& run);

// What make() returned when this process, or one before it, asked for `key` on such a device with
// these libraries.
std::string tuned_choice(const CudaDevice& device, const std::string& key,
                         const std::function<std::string()>& make);

}  // namespace dltrain

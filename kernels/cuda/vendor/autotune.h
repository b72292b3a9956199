// Chooses among algorithms by timing them on the device when a plan is made. Choices are stored
// (vendor/code_cache.h), so that later runs on such a device reuse them without timing. With
// several ranks the first one chooses for all.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda/vendor/device.h"
#include "ops/kernel.h"
#include "ops/op.h"

namespace dltrain {

// Limits of timing.
struct TuningLimits {
  size_t candidates;      // per choice; 1: no timing, uses the library's first
  double choice_seconds;  // for one choice, including creation of its candidates
  double total_seconds;   // for all choices of a device
};
TuningLimits tuning_limits(Autotune mode);

// Tensors for timing: as many sets of them as it takes to exceed the L2 cache twice (at most 256,
// and half of the free memory), so that a run does not find its operands in the cache, as in a
// step. Normal numbers in f32, bf16 and f16, since a GPU is faster on zeros; zeros in others.
class TimingTensors {
 public:
  TimingTensors(CudaDevice& device, std::span<const TensorSpec> tensors);
  // Returns the addresses of the next set, all sets in turn; nullptr for empty tensors.
  std::span<void* const> next() { return sets_[runs_++ % sets_.size()]; }

 private:
  Buffer memory_;
  std::vector<std::vector<void*>> sets_;
  size_t runs_ = 0;
};

// Returns the fastest of `candidates` (at least one). run(i, stream) queues candidate i, or returns
// false if it fails. Each runs for some milliseconds after an untimed first run, more and more
// times between two events, so that the host's share vanishes. No candidate begins after the time
// limit of the choice. Ties go to the earlier one. Returns nullopt if all fail. Only within `make`
// of tuned_choice.
std::optional<size_t> fastest(CudaDevice& device, size_t candidates,
                              const std::function<bool(size_t, Stream&)>& run);

// The same for kernels of an op with these tensors, and not more of them than the mode allows.
// make(i) returns candidate i, or nullptr if it cannot be built. Memory for one at a time.
std::optional<size_t> fastest_kernel(CudaDevice& device, SpecSpan inputs, SpecSpan outputs,
                                     size_t candidates,
                                     const std::function<std::unique_ptr<Kernel>(size_t)>& make);

// Returns the result of make() for `key`: stored from this or an earlier process for such a device,
// these libraries and this mode, or with several ranks on such devices that of the first to ask.
// All of make() counts as time spent on timing: memory and candidates too. Empty without time or
// memory for timing, which is not stored for later runs.
std::string tuned_choice(CudaDevice& device, const std::string& key,
                         const std::function<std::string()>& make);

}  // namespace dltrain

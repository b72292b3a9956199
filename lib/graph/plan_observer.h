// Interface by which profilers observe the calls of a plan.
#pragma once

#include <cstddef>

#include "device/device.h"

namespace dltrain {

class Plan;

// Called from the thread that runs the plan, around every kernel call. On a GPU, end_call() means
// that the work is queued, not that it is done. Implementations must be quick and allocate nothing.
class PlanObserver {
 public:
  virtual ~PlanObserver() = default;
  // `call`: index into plan.calls().
  virtual void begin_call(const Plan& plan, size_t call, Stream& stream) = 0;
  virtual void end_call(const Plan& plan, size_t call, Stream& stream) = 0;
};

}  // namespace dltrain

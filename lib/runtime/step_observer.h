// Observers of the parts of a training step besides its kernel calls, for `dltrain profile`.
#pragma once

#include <cstdint>

#include "data/prefetch.h"
#include "graph/call_observer.h"

namespace dltrain {

// The parts of a step outside the kernel calls. Parts are not nested, except in `step`, which
// contains all others.
enum class StepPart : uint8_t {
  step,     // the complete step
  data,     // waiting for a batch
  inputs,   // passing the batch to the program
  results,  // waiting for the sums of this step or the previous one
  ranks,    // agreeing with the other ranks whether to stop
};
inline constexpr size_t kStepParts = 5;

// Called by the training thread; the functions of FillObserver by the loader's thread.
class StepObserver : public CallObserver, public FillObserver {
 public:
  // `index`: of the step, or of the micro-step for data and inputs, otherwise 0.
  virtual void begin(StepPart part, int64_t index) = 0;
  virtual void end(StepPart part) = 0;
};

// Reports a part during its lifetime. Costs one comparison without an observer.
class ObservedPart {
 public:
  ObservedPart(StepObserver* observer, StepPart part, int64_t index = 0)
      : observer_(observer), part_(part) {
    if (observer_ != nullptr) observer_->begin(part, index);
  }
  ~ObservedPart() {
    if (observer_ != nullptr) observer_->end(part_);
  }
  ObservedPart(const ObservedPart&) = delete;
  ObservedPart& operator=(const ObservedPart&) = delete;

 private:
  StepObserver* observer_;
  StepPart part_;
};

}  // namespace dltrain

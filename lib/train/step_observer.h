// Who wants to see what a training step does besides its kernel calls: `dltrain profile`.
#pragma once

#include <cstdint>

#include "data/prefetch.h"
#include "graph/plan_observer.h"

namespace dltrain {

// What the training thread is at, outside the kernel calls. Parts do not lie in each other, but for
// `step`, which holds all others of a step.
enum class StepPart : uint8_t {
  step,     // the whole of it, from one to the next
  data,     // waiting for a batch
  inputs,   // handing the batch to the plan
  results,  // waiting for the sums of this step, or of the one before
  ranks,    // agreeing with the other ranks whether to stop
};
inline constexpr size_t kStepParts = 5;

// Calls come from the training thread, those of FillObserver from the loader's.
class StepObserver : public PlanObserver, public FillObserver {
 public:
  // `index`: of the step; of the micro-step for data and inputs, otherwise 0.
  virtual void begin(StepPart part, int64_t index) = 0;
  virtual void end(StepPart part) = 0;
};

// Tells of a part while it lives. Costs one comparison where nobody looks.
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

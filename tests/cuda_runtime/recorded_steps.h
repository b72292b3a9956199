// The record of each training step over the tests' runtime.
#pragma once

#include <vector>

#include "cuda_runtime/fake_runtime.h"
#include "run/trainer.h"

namespace dltrain {

struct RecordedSteps {
  std::vector<double> loss, grad_norm;
  std::vector<fake_cuda::Counts> counts;  // after each step
  std::vector<size_t> pending;            // likewise

  // Write into this object, which must outlive them.
  TrainEvents events() {
    TrainEvents out;
    out.on_step = [this](const StepRecord& record) {
      loss.push_back(record.loss);
      grad_norm.push_back(record.grad_norm);
    };
    out.on_progress = [this](int64_t) {
      counts.push_back(fake_cuda::counts());
      pending.push_back(fake_cuda::pending());
    };
    return out;
  }
};

}  // namespace dltrain

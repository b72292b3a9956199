// Values that change from step to step. They are in device memory at a fixed address, where kernels
// read them, and never kernel arguments, so that a captured step can be replayed. Plain data,
// shared by host and device code.
#pragma once

#include <cstdint>

namespace dltrain {

// Written by the host (copied in stream order) before every micro-step.
struct StepInputs {
  uint64_t seed;              // of the run
  int64_t step;               // optimizer steps finished before this one: 0 in the first step
  int64_t sample_offset;      // place of the micro-batch's first sample within the global batch
  double learning_rate;       // of this step
  double inverse_valid;       // 1 / divisor of the loss's mean over the whole global batch
  double max_grad_norm;       // 0: no clipping
  double max_grad_value = 0;  // limit of each element of the gradient; 0: none
  // Dynamic loss scaling (fp16): finite steps after which the scale doubles; 0: the scale is fixed.
  int64_t scale_growth_interval = 0;
};

// Written by the device in the update segment (gradient_norm), read by later ops of the segment,
// and by the host one step late. `updates`, `loss_scale` and `scale_streak` are state: they are
// saved in checkpoints.
struct StepResults {
  double grad_norm;  // Euclidean norm of the averaged gradient without loss scale, not clipped
  double gradient_factor;    // factor of gradients in update ops: clipping / loss_scale;
                             // in.max_grad_value limits the product
  int64_t updates;           // updates applied so far, including this one when `finite`
  int64_t finite;            // 1: gradients are finite; 0: every guarded write is skipped
  double loss_scale = 1;     // of the next step; 1 without scaling
  int64_t scale_streak = 0;  // finite steps since the scale last changed
};

struct StepState {
  StepInputs in;
  StepResults out;
};

}  // namespace dltrain

// The simple noise scale of the gradient (McCandlish et al. 2018, "An Empirical Model of
// Large-Batch Training", appendix A.1): tr Σ / |G|², with Σ the covariance of the gradient of one
// sample and G its mean. It is the critical batch: below it, a batch twice as large needs nearly
// half the steps; above it, nearly as many.
#pragma once

#include <cstdint>

namespace dltrain {

class GradientNoise {
 public:
  // A step has `ranks` × `micro_steps` micro-batches of `micro_batch` samples, at least two.
  GradientNoise(int64_t ranks, int64_t micro_steps, int64_t micro_batch);

  // Takes a step's sums without loss scale. `squares`: Σ |S|² over ranks and micro-steps, with S
  // the sum of the rank's gradients so far (passes/gradient_squares.h); `norm`: of the whole
  // gradient.
  void add(double squares, double norm);

  // In samples: a ratio of averages over about the last 100 steps, since that of one step is too
  // noisy (and biased). Not a number while there is no estimate, and infinite while the gradient
  // cannot be told from noise.
  double scale() const;

 private:
  double signal_of_squares_, noise_of_squares_;  // E[squares] = signal_·|G|² + noise_·tr Σ
  double noise_of_norm_;                         // E[norm²] = |G|² + noise_·tr Σ
  double signal_ = 0, noise_ = 0, weight_ = 0;   // moving averages, and the weight of their steps
};

}  // namespace dltrain

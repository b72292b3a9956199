#include "run/gradient_noise.h"

#include <cmath>
#include <limits>

namespace dltrain {

GradientNoise::GradientNoise(int64_t ranks, int64_t micro_steps, int64_t micro_batch) {
  const auto r = static_cast<double>(ranks), m = static_cast<double>(micro_steps),
             samples = static_cast<double>(micro_batch), all = r * m;
  // A sum of k gradients, of means over `samples` divided by `all`, has the expected square
  // k²/all²·|G|² + k/all²·tr Σ/samples.
  signal_of_squares_ = r * m * (m + 1) * (2 * m + 1) / 6 / (all * all);
  noise_of_squares_ = r * m * (m + 1) / 2 / (all * all * samples);
  noise_of_norm_ = 1 / (all * samples);
}

void GradientNoise::add(double squares, double norm) {
  if (!std::isfinite(squares) || !std::isfinite(norm)) return;
  const double noise = (squares - signal_of_squares_ * norm * norm) /
                       (noise_of_squares_ - signal_of_squares_ * noise_of_norm_);
  const double signal = norm * norm - noise_of_norm_ * noise;
  constexpr double kKept = 0.99;
  signal_ = kKept * signal_ + (1 - kKept) * signal;
  noise_ = kKept * noise_ + (1 - kKept) * noise;
  weight_ = kKept * weight_ + (1 - kKept);
}

double GradientNoise::scale() const {
  if (weight_ == 0 || noise_ <= 0) return std::numeric_limits<double>::quiet_NaN();
  return signal_ > 0 ? noise_ / signal_ : std::numeric_limits<double>::infinity();
}

}  // namespace dltrain

// The samples that a model contradicts most.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "run/predict.h"

namespace dltrain {
namespace {

double minus_log(double p) {
  return -std::log(std::max(p, 1e-30));
}

// The loss of the numbers of one position, for its targets; NaN: no target counts.
class PositionLoss {
 public:
  PositionLoss(const Predictions& predictions, const TensorSpec& target)
      : p_(predictions), labels_(target.dtype == DType::i32), width_(p_.width / p_.positions()) {}

  double operator()(const float* values, const std::byte* targets, int64_t position,
                    int64_t per_position) const {
    double sum = 0;
    bool counts = false;
    for (int64_t i = 0; i < per_position; ++i) {
      const size_t at = static_cast<size_t>(position * per_position + i);
      if (labels_) {
        const int32_t label = reinterpret_cast<const int32_t*>(targets)[at];
        if (label == kIgnoredLabel) continue;
        sum += of_label(values, label, i);
      } else {
        const float target = reinterpret_cast<const float*>(targets)[at];
        if (std::isnan(target)) continue;
        sum += of_number(values[i], target);
      }
      counts = true;
    }
    return counts ? sum : NAN;
  }

 private:
  double of_label(const float* values, int32_t label, int64_t output) const {
    if (p_.classes == 0) return of_number(values[output], static_cast<float>(label));
    return label >= 0 && label < width_ ? minus_log(static_cast<double>(values[label])) : 0;
  }
  // The value is a probability of 1, or of a class whose share is `target`, or a number.
  double of_number(float value, float target) const {
    const auto x = static_cast<double>(value), y = static_cast<double>(target);
    if (p_.kind == TargetKind::numbers) return 0.5 * (x - y) * (x - y);
    if (p_.classes > 0) return y > 0 ? y * minus_log(x) : 0;
    return y * minus_log(x) + (1 - y) * minus_log(1 - x);
  }

  const Predictions& p_;
  bool labels_;
  int64_t width_;
};

}  // namespace

std::vector<Suspect> suspects(const Predictions& predictions, const Dataset& dataset, size_t most) {
  if (!dataset.has_targets()) {
    fail(ExitCode::usage, "--suspicious compares predictions with targets, and the data has none");
  }
  const TensorSpec target = dataset.fields()[dataset.target_field()].sample;
  const int64_t positions = predictions.positions(), width = predictions.width / positions;
  const int64_t per_position = target.shape.elements() / positions;
  const PositionLoss loss(predictions, target);
  std::vector<std::byte> bytes(target.bytes());
  std::vector<Suspect> out;
  for (int64_t sample = 0; sample < predictions.samples; ++sample) {
    dataset.gather(dataset.target_field(), {&sample, 1}, bytes.data());
    for (int64_t position = 0; position < positions; ++position) {
      const float* values = predictions.values.data() + (sample * positions + position) * width;
      const double here = loss(values, bytes.data(), position, per_position);
      if (!std::isnan(here)) out.push_back({sample, position, here});
    }
  }
  const auto worse = [](const Suspect& a, const Suspect& b) { return a.loss > b.loss; };
  const auto kept = static_cast<std::ptrdiff_t>(std::min(most, out.size()));
  std::partial_sort(out.begin(), out.begin() + kept, out.end(), worse);
  out.resize(static_cast<size_t>(kept));
  return out;
}

}  // namespace dltrain

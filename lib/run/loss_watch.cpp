#include "run/loss_watch.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace dltrain {
namespace {

constexpr size_t kBuckets = 20;    // and at most twice as many
constexpr double kNotable = 1e-3;  // of the first loss; below it a run has converged

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

// The median and the median deviation do not follow a few outliers. Noise that is normally
// distributed passes eight deviations once in 10^7 steps.
std::string LossWatch::spike(int64_t step, double loss, double grad_norm) const {
  if (recent_.size() < kBefore || logged_ < quiet_until_) return "";
  const double middle = median({recent_.begin(), recent_.end()});
  std::vector<double> distances;
  for (const double value : recent_) distances.push_back(std::abs(value - middle));
  const double deviation = 1.48 * median(distances);
  const bool far = loss > middle + 8 * deviation && loss > 1.5 * middle && middle > 0 &&
                   loss > kNotable * first_;
  if (!far) return "";
  return fmt::format(
      "step {}: the loss rose to {:.4g} (median of the {} logged steps before: {:.4g}), gradient "
      "norm {:.3g}",
      step, loss, kBefore, middle, grad_norm);
}

std::string LossWatch::plateau(int64_t step) {
  if (told_plateau_ || buckets_.size() < kBuckets) return "";
  const auto half = static_cast<std::ptrdiff_t>(buckets_.size() / 2);
  const double before = *std::min_element(buckets_.begin(), buckets_.begin() + half);
  const double after = *std::min_element(buckets_.begin() + half, buckets_.end());
  if (!(before > 0) || after < 0.99 * before) return "";
  told_plateau_ = true;
  return fmt::format(
      "step {}: the training loss has not fallen for half of the steps so far ({:.4g} then, {:.4g} "
      "since): a lower rate, a larger model, or the end",
      step, before, after);
}

std::string LossWatch::add(int64_t step, double loss, double grad_norm) {
  if (!std::isfinite(loss)) return "";
  if (logged_ == 0) first_ = loss;
  std::string out = spike(step, loss, grad_norm);
  if (!out.empty()) {
    quiet_until_ = logged_ + quiet_;
    quiet_ *= 2;
  }
  ++logged_;
  recent_.push_back(loss);
  if (recent_.size() > kBefore) recent_.pop_front();
  sum_ += loss;
  if (++in_bucket_ < bucket_) return out;
  buckets_.push_back(sum_ / static_cast<double>(bucket_));
  sum_ = 0, in_bucket_ = 0;
  if (buckets_.size() == 2 * kBuckets) {  // neighbours are joined
    for (size_t i = 0; i < kBuckets; ++i) buckets_[i] = (buckets_[2 * i] + buckets_[2 * i + 1]) / 2;
    buckets_.resize(kBuckets);
    bucket_ *= 2;
  }
  return out.empty() ? plateau(step) : out;
}

}  // namespace dltrain

#include "data/target_counter.h"

#include <cmath>

#include "base/error.h"

namespace dltrain {

TargetCounter::TargetCounter(const Dataset& dataset, TargetWeights weights)
    : dataset_(&dataset), weights_(std::move(weights)) {
  const TensorSpec& spec = dataset.fields().back().sample;
  if (spec.dtype == DType::i32) {
    weights_.group = 1;
  } else {
    check_internal(weights_.by_label.empty(), "weights by label of {}", to_string(spec));
  }
  if (!uniform(1)) targets_.resize(spec.bytes());
}

std::optional<TargetCount> TargetCounter::uniform(int64_t samples) const {
  const auto each = dataset_->uniform_valid_targets();
  if (!each || !weights_.by_label.empty()) return {};
  const int64_t valid = *each * samples / weights_.group;
  return TargetCount{valid, static_cast<double>(valid) * weights_.each};
}

void TargetCounter::add(int64_t sample, const SampleVisit* visit, TargetCount& count) {
  if (const auto same = uniform(1)) {
    count.valid += same->valid;
    count.divisor += same->divisor;
    return;
  }
  dataset_->read(dataset_->target_field(), {&sample, 1}, visit, targets_.data());
  const TensorSpec& spec = dataset_->fields().back().sample;
  const auto elements = static_cast<size_t>(spec.shape.elements());
  int64_t valid = 0;
  if (spec.dtype == DType::i32) {
    for (int32_t label : std::span(reinterpret_cast<const int32_t*>(targets_.data()), elements)) {
      if (label < 0) continue;
      ++valid;
      if (weights_.by_label.empty()) continue;
      count.divisor += weights_.by_label.at(static_cast<size_t>(label));
    }
  } else {
    const auto* numbers = reinterpret_cast<const float*>(targets_.data());
    for (size_t i = 0; i < elements; i += static_cast<size_t>(weights_.group)) {
      valid += std::isnan(numbers[i]) ? 0 : 1;  // the first share decides, as in the kernels
    }
  }
  count.valid += valid;
  if (weights_.by_label.empty()) count.divisor += static_cast<double>(valid) * weights_.each;
}

}  // namespace dltrain

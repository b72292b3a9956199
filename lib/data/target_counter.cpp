#include "data/target_counter.h"

#include "base/error.h"

namespace dltrain {

TargetCounter::TargetCounter(const Dataset& dataset, TargetWeights weights)
    : dataset_(&dataset), weights_(std::move(weights)) {
  const TensorSpec& spec = dataset.fields().back().sample;
  if (spec.dtype == DType::i32) {
    weights_.group = 1;
    labels_.resize(static_cast<size_t>(spec.shape.elements()));
  } else {
    check_internal(weights_.by_label.empty(), "weights by label of {}", to_string(spec));
  }
}

std::optional<TargetCount> TargetCounter::uniform(int64_t samples) const {
  const auto each = dataset_->uniform_valid_targets();
  if (!each || !weights_.by_label.empty()) return {};
  const int64_t valid = *each * samples / weights_.group;
  return TargetCount{valid, static_cast<double>(valid) * weights_.each};
}

void TargetCounter::add(int64_t sample, TargetCount& count) {
  if (weights_.by_label.empty()) {
    const int64_t valid = dataset_->valid_targets(sample) / weights_.group;
    count.valid += valid;
    count.divisor += static_cast<double>(valid) * weights_.each;
    return;
  }
  dataset_->gather(dataset_->target_field(), {&sample, 1},
                   reinterpret_cast<std::byte*>(labels_.data()));
  for (int32_t label : labels_) {
    if (label < 0) continue;
    count.valid += 1;
    count.divisor += weights_.by_label[static_cast<size_t>(label)];
  }
}

}  // namespace dltrain

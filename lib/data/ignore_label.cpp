#include "data/ignore_label.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr int64_t kMaxCounted = int64_t{1} << 24;

class IgnoreLabel final : public DatasetWrapper {
 public:
  IgnoreLabel(std::shared_ptr<const Dataset> whole, int32_t label)
      : DatasetWrapper(std::move(whole)), label_(label) {
    bool all = true;
    for_each_sample<int32_t>(this->whole(), target_field(), [&](int64_t, auto labels) {
      int64_t valid = 0;
      for (int32_t found : labels) {
        if (found < 0 || found == label_) continue;
        bound_ = std::max<int64_t>(bound_, int64_t{found} + 1);
        ++valid;
      }
      valid_.push_back(static_cast<int32_t>(valid));
      all = all && valid == static_cast<int64_t>(labels.size());
    });
    if (all) uniform_ = valid_.front();
  }

  int64_t valid_targets(int64_t sample) const override {
    return valid_[static_cast<size_t>(sample)];
  }
  std::optional<int64_t> uniform_valid_targets() const override { return uniform_; }
  int64_t label_bound() const override { return bound_; }

 private:
  void change(int field, size_t samples, std::byte* out) const override {
    if (field != target_field()) return;
    const auto count = samples * fields().back().sample.bytes() / sizeof(int32_t);
    auto* labels = reinterpret_cast<int32_t*>(out);
    std::replace(labels, labels + count, label_, kIgnoredLabel);
  }

  int32_t label_;
  std::vector<int32_t> valid_;  // by sample
  std::optional<int64_t> uniform_;
  int64_t bound_ = 0;
};

class LabelsAsTargets final : public DatasetWrapper {
 public:
  explicit LabelsAsTargets(std::shared_ptr<const Dataset> labelled)
      : DatasetWrapper(std::move(labelled)), fields_(whole().fields()) {
    TensorSpec& target = fields_.back().sample;
    target = {target.shape.rank() == 0 ? Shape{1} : target.shape, DType::f32};
  }

  const std::vector<FieldSpec>& fields() const override { return fields_; }
  int64_t label_bound() const override { return 0; }

 private:
  void change(int field, size_t samples, std::byte* out) const override {
    if (field != target_field()) return;
    const auto count = samples * fields_.back().sample.bytes() / sizeof(float);
    for (size_t i = 0; i < count; ++i, out += sizeof(float)) {
      int32_t label = 0;
      std::memcpy(&label, out, sizeof label);
      const float answer = label == kIgnoredLabel ? std::numeric_limits<float>::quiet_NaN()
                                                  : static_cast<float>(label);
      std::memcpy(out, &answer, sizeof answer);
    }
  }

  std::vector<FieldSpec> fields_;
};

}  // namespace

std::shared_ptr<const Dataset> labels_as_targets(std::shared_ptr<const Dataset> whole) {
  if (whole->label_bound() > 2) {
    const auto classes =
        std::max(whole->label_bound(), static_cast<int64_t>(whole->class_names().size()));
    fail(
        ExitCode::data,
        "the data has {} classes; binary_cross_entropy takes the labels 0 and 1 (use cross_entropy "
        "for more classes)",
        classes);
  }
  return std::make_shared<LabelsAsTargets>(std::move(whole));
}

std::shared_ptr<const Dataset> ignore_label(std::shared_ptr<const Dataset> whole, int32_t label) {
  return std::make_shared<IgnoreLabel>(std::move(whole), label);
}

std::vector<int64_t> count_labels(const Dataset& dataset) {
  if (dataset.label_bound() > kMaxCounted) {
    fail(ExitCode::data, "labels up to {} are too many to be counted", dataset.label_bound() - 1);
  }
  std::vector<int64_t> counts(static_cast<size_t>(dataset.label_bound()), 0);
  for_each_sample<int32_t>(dataset, dataset.target_field(), [&](int64_t, auto labels) {
    for (int32_t label : labels) {
      if (label >= 0) ++counts[static_cast<size_t>(label)];
    }
  });
  return counts;
}

}  // namespace dltrain

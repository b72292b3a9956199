#include "data/classes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/philox.h"
#include "config/suggest.h"
#include "data/permutation.h"

namespace dltrain {
namespace {

constexpr double kChance = 0.01;
constexpr int64_t kMaxClasses = 65536;
constexpr uint64_t kSplitStream = random_stream("data.eval_split");

class Relabelled final : public DatasetWrapper {
 public:
  Relabelled(std::shared_ptr<const Dataset> data, const std::vector<std::string>& names)
      : DatasetWrapper(std::move(data)), names_(names) {
    const auto& own = whole().class_names();
    std::map<std::string_view, int32_t> known;
    for (size_t i = 0; i < names_.size(); ++i) known.emplace(names_[i], static_cast<int32_t>(i));
    for (const std::string& name : own) {
      const auto found = known.find(name);
      label_of_.push_back(found == known.end() ? kUnknown : found->second);
    }
    if (!own.empty()) check_all_known();
  }

  // The number of names, because the splits may not have all classes.
  int64_t label_bound() const override {
    return label_of_.empty() ? whole().label_bound() : static_cast<int64_t>(names_.size());
  }
  const std::vector<std::string>& class_names() const override { return names_; }

 private:
  static constexpr int32_t kUnknown = -1;

  void check_all_known() const {
    const auto& own = whole().class_names();
    for_each_sample<int32_t>(whole(), target_field(), [&](int64_t sample, auto labels) {
      if (labels[0] < 0) return;
      const auto i = static_cast<size_t>(labels[0]);
      if (i < label_of_.size() && label_of_[i] != kUnknown) return;
      throw Error(ExitCode::data,
                  fmt::format("the class {} is not one of the {} trained classes: {}",
                              i < own.size() ? "'" + own[i] + "'" : std::to_string(i),
                              names_.size(), some_names(names_)),
                  location_of(sample));
    });
  }

  void change(int field, size_t samples, std::byte* out) const override {
    if (label_of_.empty() || field != target_field()) return;
    for (int32_t& label : std::span(reinterpret_cast<int32_t*>(out), samples)) {
      if (label >= 0) label = label_of_[static_cast<size_t>(label)];
    }
  }

  std::vector<std::string> names_;
  std::vector<int32_t> label_of_;  // by label of the data; empty: labels are unchanged
};

// Returns the classes of `counts` that do not occur in `others` although a random split of that
// size would very likely have them.
std::vector<std::string> absent(const std::vector<int64_t>& counts,
                                const std::vector<int64_t>& others,
                                const std::vector<std::string>& names) {
  double all = 0, of_others = 0, classes = 0;
  for (const int64_t n : counts) {
    all += static_cast<double>(n);
    classes += n > 0 ? 1 : 0;
  }
  for (const int64_t n : others) of_others += static_cast<double>(n);
  std::vector<std::string> out;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0 || (i < others.size() && others[i] > 0)) continue;
    const double share = static_cast<double>(counts[i]) / all;
    if (classes * std::pow(1 - share, of_others) >= kChance) continue;
    out.push_back(i < names.size() ? "'" + names[i] + "'" : std::to_string(i));
  }
  return out;
}

constexpr int64_t kMaxCounted = int64_t{1} << 24;

class IgnoreLabel final : public DatasetWrapper {
 public:
  IgnoreLabel(std::shared_ptr<const Dataset> whole, int32_t label)
      : DatasetWrapper(std::move(whole)), label_(label) {
    if (const auto known = id_bound(target_field())) {
      bound_ = *known;  // tokens: training may have others than evaluation
      return;
    }
    uniform_ = fields().back().sample.shape.elements();
    for_each_sample<int32_t>(this->whole(), target_field(), [&](int64_t, auto labels) {
      for (int32_t found : labels) {
        if (found < 0 || found == label_) {
          uniform_.reset();
        } else {
          bound_ = std::max<int64_t>(bound_, int64_t{found} + 1);
        }
      }
    });
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

bool has_one_label(const Dataset& data) {
  const TensorSpec& target = data.fields().back().sample;
  return target.dtype == DType::i32 && target.shape.elements() == 1;
}

std::shared_ptr<const Dataset> match_classes(std::shared_ptr<const Dataset> data,
                                             const std::vector<std::string>& names) {
  if (names.empty() || data->class_names() == names || !has_one_label(*data)) return data;
  return std::make_shared<Relabelled>(std::move(data), names);
}

DataSplit split_off_eval_by_class(std::shared_ptr<const Dataset> whole, double eval_fraction,
                                  std::optional<uint64_t> seed) {
  const int64_t size = whole->size();
  const auto share = [&](int64_t n) {
    return static_cast<int64_t>(std::llround(eval_fraction * static_cast<double>(n)));
  };
  std::vector<int64_t> left = count_classes(*whole);  // of each class, in training
  const auto classes = std::count_if(left.begin(), left.end(), [](int64_t n) { return n > 0; });
  const bool by_class = classes > 0 && (!seed || classes <= share(size));
  if (!by_class) left = {size};
  for (int64_t& n : left) {
    if (n > 1) n -= std::clamp<int64_t>(share(n), 1, n - 1);
  }
  const Permutation shuffled(static_cast<uint64_t>(size), seed.value_or(0) ^ kSplitStream, 0);
  std::vector<bool> held(static_cast<size_t>(size));
  for (int64_t location = 0; location < size; ++location) {
    const int64_t sample =
        seed ? static_cast<int64_t>(shuffled(static_cast<uint64_t>(location))) : location;
    int32_t label = 0;
    if (by_class) {
      whole->gather(whole->target_field(), {&sample, 1}, reinterpret_cast<std::byte*>(&label));
    }
    held[static_cast<size_t>(sample)] = label >= 0 && left[static_cast<size_t>(label)]-- <= 0;
  }
  std::vector<int64_t> train, eval;
  for (int64_t i = 0; i < size; ++i) (held[static_cast<size_t>(i)] ? eval : train).push_back(i);
  if (eval.empty() || train.empty()) {
    fail(ExitCode::data, "eval_fraction {} of {} samples leaves none for {}", eval_fraction, size,
         eval.empty() ? "evaluation: no class has two samples" : "training");
  }
  return {select(whole, std::move(train)), select(whole, std::move(eval))};
}

std::vector<int64_t> count_classes(const Dataset& data) {
  const bool countable =
      has_one_label(data) && data.has_targets() && data.label_bound() <= kMaxClasses;
  return countable ? count_labels(data) : std::vector<int64_t>();
}

std::string imbalanced_classes(const std::vector<int64_t>& train, const std::vector<int64_t>& eval,
                               const std::vector<std::string>& names) {
  if (train.empty() || eval.empty()) return {};
  if (const auto missing = absent(train, eval, names); !missing.empty()) {
    return "the eval split has no samples of the classes " + some_names(missing);
  }
  auto missing = absent(eval, train, names);
  // Labels beyond those of the training are none by chance: they give the model further outputs.
  for (size_t i = train.size(); names.empty() && missing.empty() && i < eval.size(); ++i) {
    if (eval[i] > 0) missing.push_back(std::to_string(i));
  }
  if (!missing.empty()) {
    return "the training split has no samples of the classes " + some_names(missing) +
           ", which the eval split has";
  }
  return {};
}

std::string unused_labels(const std::vector<int64_t>& train) {
  std::vector<std::string> unused;
  for (size_t i = 0; i < train.size(); ++i) {
    if (train[i] == 0) unused.push_back(std::to_string(i));
  }
  if (unused.empty()) return {};
  return fmt::format(
      "no training sample has the label{} {}; labels are 0 to {}, one for each output",
      unused.size() == 1 ? "" : "s", some_names(unused), train.size() - 1);
}

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

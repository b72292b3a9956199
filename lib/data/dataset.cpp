#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dltrain {
namespace {

class WithoutTargets final : public DatasetWrapper {
 public:
  WithoutTargets(std::shared_ptr<const Dataset> whole, const std::optional<TensorSpec>& target)
      : DatasetWrapper(std::move(whole)), fields_(DatasetWrapper::fields()) {
    if (target) fields_.back().sample = *target;
  }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  bool has_targets() const override { return false; }
  std::optional<int64_t> uniform_valid_targets() const override { return 0; }
  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override {
    if (field != target_field()) return DatasetWrapper::read(field, samples, first, out);
    const TensorSpec& target = fields_.back().sample;
    const auto count = samples.size() * static_cast<size_t>(target.shape.elements());
    if (target.dtype == DType::i32) {
      std::fill_n(reinterpret_cast<int32_t*>(out), count, kIgnoredLabel);
    } else {
      std::fill_n(reinterpret_cast<float*>(out), count, std::numeric_limits<float>::quiet_NaN());
    }
  }

 private:
  std::vector<FieldSpec> fields_;
};

}  // namespace

const std::vector<std::string>& Dataset::class_names() const {
  static const std::vector<std::string> none;
  return none;
}

void Dataset::hash_inputs(int64_t sample, Hasher& hasher) const {
  std::vector<std::byte> memory;
  for (int field = 0; field < target_field(); ++field) {
    memory.resize(fields()[static_cast<size_t>(field)].sample.bytes());
    gather(field, {&sample, 1}, memory.data());
    hasher.update(memory);
  }
}

int64_t Dataset::length(int field, int64_t) const {
  const Shape& shape = fields()[static_cast<size_t>(field)].sample.shape;
  return shape.rank() == 0 ? 0 : shape[0];
}

int64_t Dataset::find_id_bound(int field) const {
  if (const auto known = id_bound(field)) return *known;
  int64_t bound = 0;
  for_each_sample<int32_t>(*this, field, [&](int64_t, std::span<const int32_t> ids) {
    for (int32_t id : ids) bound = std::max<int64_t>(bound, int64_t{id} + 1);
  });
  return bound;
}

namespace {

// Throws for an id or label outside of a model with `ids` of them.
[[noreturn]] void refuse_id(const Dataset& data, int64_t ids, int64_t sample, std::string message) {
  const auto tokenizer = data.tokenizer();
  if (tokenizer && tokenizer->vocab_size() > ids) {
    message = fmt::format(
        "the tokenizer of the data ({}) has {} tokens, but the model has {}; they do not match; {}",
        tokenizer->kind(), tokenizer->vocab_size(), ids, message);
  }
  throw Error(ExitCode::data, message, data.location_of(sample));
}

}  // namespace

void Dataset::check_labels(int64_t classes) const {
  if (label_bound() <= classes) return;
  for_each_sample<int32_t>(*this, target_field(), [&](int64_t sample, auto labels) {
    for (int32_t label : labels) {
      if (label < classes) continue;
      if (const auto known = std::ssize(class_names()); known > classes) {
        throw Error(ExitCode::data,
                    fmt::format("the data has {} classes, but the model has {} outputs; set "
                                "num_classes (or out_features) of the model to auto",
                                known, classes),
                    location_of(sample));
      }
      refuse_id(*this, classes, sample,
                fmt::format("label {} does not fit the model's {} outputs (0 to {})", label,
                            classes, classes - 1));
    }
  });
}

void Dataset::check_ids(int field, int64_t bound) const {
  if (const auto known = id_bound(field); known && *known <= bound) return;
  for_each_sample<int32_t>(*this, field, [&](int64_t sample, auto ids) {
    for (int32_t id : ids) {
      if (id >= 0 && id < bound) continue;
      refuse_id(*this, bound, sample,
                fmt::format("id {} of {} does not fit the model's embedding (0 to {})", id,
                            fields()[static_cast<size_t>(field)].name, bound - 1));
    }
  });
}

void Dataset::check_targets(float least, float most) const {
  for_each_sample<float>(*this, target_field(), [&](int64_t sample, auto targets) {
    for (float target : targets) {
      if (std::isnan(target) || (target >= least && target <= most)) continue;
      throw Error(ExitCode::data,
                  fmt::format("target {} is not within {} to {}", target, least, most),
                  location_of(sample));
    }
  });
}

void Dataset::check_distributions(int64_t classes) const {
  constexpr double kRounding = 0.02;
  const auto group = static_cast<size_t>(classes);
  for_each_sample<float>(*this, target_field(), [&](int64_t sample, auto targets) {
    check_internal(targets.size() % group == 0, "{} targets of {} classes", targets.size(), group);
    const auto refuse = [&](const std::string& message) {
      throw Error(ExitCode::data, message, location_of(sample));
    };
    for (size_t first = 0; first < targets.size(); first += group) {
      double sum = 0;
      for (float share : targets.subspan(first, group)) {
        if (share < 0 || share > 1) {
          refuse(
              fmt::format("target {} is not the share of a class, from 0 to 1 (labels must be "
                          "integers; use mse or a similar loss to predict numbers)",
                          share));
        }
        sum += static_cast<double>(share);
      }
      if (std::isnan(sum) || std::abs(sum - 1) <= kRounding) continue;
      refuse(fmt::format("the targets of {} classes add up to {:.6g}, not to 1", classes, sum));
    }
  });
}

// The numbers in the other dataset are on the stack, because training must not allocate.
void DatasetSubset::read(int field, std::span<const int64_t> samples, const SampleVisit* first,
                         std::byte* out) const {
  const size_t bytes = fields()[static_cast<size_t>(field)].sample.bytes();
  SampleVisit visit = first != nullptr ? *first : SampleVisit{};
  int64_t numbers[256];
  for (size_t at = 0; at < samples.size(); at += std::size(numbers)) {
    const size_t n = std::min(samples.size() - at, std::size(numbers));
    for (size_t i = 0; i < n; ++i) numbers[i] = number_of_(samples[at + i]);
    whole().read(field, {numbers, n}, first != nullptr ? &visit : nullptr, out + at * bytes);
    visit.position += static_cast<int64_t>(n);
  }
}

std::shared_ptr<const Dataset> slice(std::shared_ptr<const Dataset> whole, int64_t first,
                                     int64_t count) {
  check_internal(first >= 0 && count > 0 && first <= whole->size() - count,
                 "samples [{}, {}) of {}", first, first + count, whole->size());
  return std::make_shared<DatasetSubset>(std::move(whole), count,
                                         [first](int64_t sample) { return first + sample; });
}

std::shared_ptr<const Dataset> select(std::shared_ptr<const Dataset> whole,
                                      std::vector<int64_t> samples) {
  check_internal(!samples.empty(), "no samples are selected");
  const auto count = static_cast<int64_t>(samples.size());
  return std::make_shared<DatasetSubset>(
      std::move(whole), count,
      [numbers = std::move(samples)](int64_t i) { return numbers[static_cast<size_t>(i)]; });
}

std::shared_ptr<const Dataset> without_targets(std::shared_ptr<const Dataset> whole,
                                               const std::optional<TensorSpec>& target) {
  return std::make_shared<WithoutTargets>(std::move(whole), target);
}

DataSplit split_off_eval(std::shared_ptr<const Dataset> whole, double eval_fraction) {
  const int64_t size = whole->size();
  const int64_t held_out =
      std::max<int64_t>(1, std::llround(eval_fraction * static_cast<double>(size)));
  if (held_out >= size) {
    fail(ExitCode::data, "eval_fraction {} of {} samples leaves none for training", eval_fraction,
         size);
  }
  return {slice(whole, 0, size - held_out), slice(whole, size - held_out, held_out)};
}

}  // namespace dltrain

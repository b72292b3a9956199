#include "data/dataset.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/tokenizer.h"

namespace dltrain {
namespace {

// `count` samples of another dataset; sample i is number_of(i) there.
template <typename NumberOf>
class DatasetPart final : public DatasetOver {
 public:
  DatasetPart(std::shared_ptr<const Dataset> whole, int64_t count, NumberOf number_of)
      : DatasetOver(std::move(whole)), count_(count), number_of_(std::move(number_of)) {}

  int64_t size() const override { return count_; }
  void gather(int field, std::span<const int64_t> samples, std::byte* out) const override {
    in_pieces(field, samples, out, [&](std::span<const int64_t> piece, size_t, std::byte* to) {
      whole().gather(field, piece, to);
    });
  }
  void gather_training(int field, std::span<const int64_t> samples, const Visit& first,
                       std::byte* out) const override {
    in_pieces(field, samples, out, [&](std::span<const int64_t> piece, size_t at, std::byte* to) {
      const Visit visit{first.seed, first.position + static_cast<int64_t>(at)};
      whole().gather_training(field, piece, visit, to);
    });
  }
  int64_t valid_targets(int64_t sample) const override {
    return whole().valid_targets(number_of_(sample));
  }
  int64_t length(int field, int64_t sample) const override {
    return whole().length(field, number_of_(sample));
  }
  void hash_inputs(int64_t sample, Hasher& hasher) const override {
    whole().hash_inputs(number_of_(sample), hasher);
  }
  std::string place_of(int64_t sample) const override {
    return whole().place_of(number_of_(sample));
  }

 private:
  // Sample numbers are looked up in small pieces on the stack: no allocation while training.
  template <typename Use>
  void in_pieces(int field, std::span<const int64_t> samples, std::byte* out,
                 const Use& use) const {
    int64_t numbers[256];
    const size_t bytes = fields()[static_cast<size_t>(field)].sample.bytes();
    for (size_t at = 0; at < samples.size(); at += std::size(numbers)) {
      const size_t n = std::min(samples.size() - at, std::size(numbers));
      for (size_t i = 0; i < n; ++i) numbers[i] = number_of_(samples[at + i]);
      use({numbers, n}, at, out + at * bytes);
    }
  }

  int64_t count_;
  NumberOf number_of_;
};

template <typename NumberOf>
std::shared_ptr<const Dataset> part(std::shared_ptr<const Dataset> whole, int64_t count,
                                    NumberOf number_of) {
  return std::make_shared<DatasetPart<NumberOf>>(std::move(whole), count, std::move(number_of));
}

class WithoutTargets final : public DatasetOver {
 public:
  using DatasetOver::DatasetOver;
  bool has_targets() const override { return false; }
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
  const FieldSpec& spec = fields()[static_cast<size_t>(field)];
  check_internal(spec.sample.dtype == DType::i32, "the ids of {} are {}", spec.name,
                 dtype_name(spec.sample.dtype));
  std::vector<int32_t> ids(static_cast<size_t>(spec.sample.shape.elements()));
  int64_t bound = 0;
  for (int64_t sample = 0; sample < size(); ++sample) {
    gather(field, {&sample, 1}, reinterpret_cast<std::byte*>(ids.data()));
    for (int32_t id : ids) bound = std::max<int64_t>(bound, int64_t{id} + 1);
  }
  return bound;
}

namespace {

// Before what was found first: why ids of text do not fit a model of so many.
std::string too_large_tokenizer(const Dataset& data, int64_t ids) {
  const auto tokenizer = data.tokenizer();
  if (!tokenizer || tokenizer->vocab_size() <= ids) return {};
  return fmt::format(
      "the tokenizer of the data ({}) has {} tokens, the model has {}: they do "
      "not fit together; ",
      tokenizer->kind(), tokenizer->vocab_size(), ids);
}

}  // namespace

void Dataset::check_labels(int64_t classes) const {
  if (label_bound() <= classes) return;
  const TensorSpec& spec = fields().back().sample;
  std::vector<int32_t> labels(static_cast<size_t>(spec.shape.elements()));
  for (int64_t sample = 0; sample < size(); ++sample) {
    gather(target_field(), {&sample, 1}, reinterpret_cast<std::byte*>(labels.data()));
    for (int32_t label : labels) {
      if (label < classes) continue;
      throw Error(ExitCode::data,
                  too_large_tokenizer(*this, classes) +
                      fmt::format("label {} does not fit the model's {} outputs (0 to {})", label,
                                  classes, classes - 1),
                  place_of(sample));
    }
  }
}

void Dataset::check_ids(int field, int64_t bound) const {
  const FieldSpec& spec = fields()[static_cast<size_t>(field)];
  check_internal(spec.sample.dtype == DType::i32, "the ids of {} are {}", spec.name,
                 dtype_name(spec.sample.dtype));
  if (const auto known = id_bound(field); known && *known <= bound) return;
  std::vector<int32_t> ids(static_cast<size_t>(spec.sample.shape.elements()));
  for (int64_t sample = 0; sample < size(); ++sample) {
    gather(field, {&sample, 1}, reinterpret_cast<std::byte*>(ids.data()));
    for (int32_t id : ids) {
      if (id >= 0 && id < bound) continue;
      throw Error(ExitCode::data,
                  too_large_tokenizer(*this, bound) +
                      fmt::format("id {} of {} does not fit the model's embedding (0 to {})", id,
                                  spec.name, bound - 1),
                  place_of(sample));
    }
  }
}

void Dataset::check_targets(float least, float most) const {
  const FieldSpec& spec = fields().back();
  check_internal(spec.sample.dtype == DType::f32, "the targets are {}",
                 dtype_name(spec.sample.dtype));
  std::vector<float> targets(static_cast<size_t>(spec.sample.shape.elements()));
  for (int64_t sample = 0; sample < size(); ++sample) {
    gather(target_field(), {&sample, 1}, reinterpret_cast<std::byte*>(targets.data()));
    for (float target : targets) {
      if (std::isnan(target) || (target >= least && target <= most)) continue;
      throw Error(ExitCode::data,
                  fmt::format("target {} is not within {} to {}", target, least, most),
                  place_of(sample));
    }
  }
}

std::shared_ptr<const Dataset> slice(std::shared_ptr<const Dataset> whole, int64_t first,
                                     int64_t count) {
  check_internal(first >= 0 && count > 0 && first <= whole->size() - count,
                 "samples [{}, {}) of {}", first, first + count, whole->size());
  return part(std::move(whole), count, [first](int64_t sample) { return first + sample; });
}

std::shared_ptr<const Dataset> select(std::shared_ptr<const Dataset> whole,
                                      std::vector<int64_t> samples) {
  check_internal(!samples.empty(), "no samples are selected");
  const auto count = static_cast<int64_t>(samples.size());
  return part(std::move(whole), count, [numbers = std::move(samples)](int64_t sample) {
    return numbers[static_cast<size_t>(sample)];
  });
}

std::shared_ptr<const Dataset> without_targets(std::shared_ptr<const Dataset> whole) {
  return std::make_shared<WithoutTargets>(std::move(whole));
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

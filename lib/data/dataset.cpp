#include "data/dataset.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace dltrain {
namespace {

class Slice final : public Dataset {
 public:
  Slice(std::shared_ptr<const Dataset> whole, int64_t first, int64_t count)
      : whole_(std::move(whole)), first_(first), count_(count) {}

  int64_t size() const override { return count_; }
  const std::vector<FieldSpec>& fields() const override { return whole_->fields(); }
  void gather(int field, std::span<const int64_t> samples, std::byte* out) const override {
    // Shifted in small pieces on the stack: no allocation while training.
    int64_t shifted[256];
    const size_t bytes = fields()[field].sample.bytes();
    while (!samples.empty()) {
      const size_t n = std::min(samples.size(), std::size(shifted));
      for (size_t i = 0; i < n; ++i) shifted[i] = samples[i] + first_;
      whole_->gather(field, {shifted, n}, out);
      out += n * bytes;
      samples = samples.subspan(n);
    }
  }
  int64_t valid_targets(int64_t sample) const override {
    return whole_->valid_targets(sample + first_);
  }
  std::optional<int64_t> uniform_valid_targets() const override {
    return whole_->uniform_valid_targets();
  }
  int64_t label_bound() const override { return whole_->label_bound(); }
  std::string place_of(int64_t sample) const override { return whole_->place_of(sample + first_); }

 private:
  std::shared_ptr<const Dataset> whole_;
  int64_t first_, count_;
};

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
  std::vector<int32_t> ids(static_cast<size_t>(spec.sample.shape.elements()));
  for (int64_t sample = 0; sample < size(); ++sample) {
    gather(field, {&sample, 1}, reinterpret_cast<std::byte*>(ids.data()));
    for (int32_t id : ids) {
      if (id >= 0 && id < bound) continue;
      throw Error(ExitCode::data,
                  fmt::format("id {} of {} does not fit the model's embedding (0 to {})", id,
                              spec.name, bound - 1),
                  place_of(sample));
    }
  }
}

std::shared_ptr<const Dataset> slice(std::shared_ptr<const Dataset> whole, int64_t first,
                                     int64_t count) {
  check_internal(first >= 0 && count > 0 && first <= whole->size() - count,
                 "samples [{}, {}) of {}", first, first + count, whole->size());
  return std::make_shared<Slice>(std::move(whole), first, count);
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

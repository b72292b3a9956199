#include "data/length_plan.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"

namespace dltrain {
namespace {

constexpr int64_t kMultiple = 8;  // of lengths, for kernels
constexpr uint64_t kBatchStream = random_stream("data.buckets.batch");

class Curriculum final : public LengthPlan {
 public:
  Curriculum(const Dataset& dataset, const CurriculumOptions& options) : options_(options) {
    const int64_t to = dataset.fields().front().sample.shape[0];
    for (const FieldSpec& field : dataset.fields()) {
      check_internal(field.sample.shape == Shape{to}, "a curriculum over {}",
                     to_string(field.sample));
    }
    if (options.from >= to) {
      fail(ExitCode::usage, "a curriculum from {} tokens does not grow to {}", options.from, to);
    }
    for (int64_t stage = 0; stage < options.stages; ++stage) {
      int64_t length = options.from + (to - options.from) * stage / (options.stages - 1);
      if (stage > 0 && stage + 1 < options.stages) length = length / kMultiple * kMultiple;
      length = std::max(length, options.from);
      if (!extents_.empty() && length <= extents_.back().front()) {
        fail(ExitCode::usage, "{} stages from {} to {} tokens do not all increase the length",
             options.stages, options.from, to);
      }
      extents_.emplace_back(dataset.fields().size(), length);
    }
  }

  size_t variant(int64_t step) const override {
    const auto last = static_cast<int64_t>(extents_.size()) - 1;
    // This return prevents an overflow below.
    if (step >= options_.steps) return static_cast<size_t>(last);
    return static_cast<size_t>(static_cast<double>(step) / static_cast<double>(options_.steps) *
                               static_cast<double>(last));
  }
  bool cuts_targets() const override { return true; }

 private:
  CurriculumOptions options_;
};

}  // namespace

std::vector<FieldSpec> LengthPlan::fields(const Dataset& dataset, size_t variant) const {
  std::vector<FieldSpec> fields = dataset.fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    Shape& shape = fields[i].sample.shape;
    if (shape.rank() == 0) continue;
    std::vector<int64_t> extents(shape.begin(), shape.end());
    extents[0] = extents_[variant][i];
    shape = Shape(extents);
  }
  return fields;
}

std::shared_ptr<const LengthPlan> make_curriculum(const Dataset& dataset,
                                                  const CurriculumOptions& options) {
  return std::make_shared<Curriculum>(dataset, options);
}

Buckets::Buckets(const Dataset& dataset, const BucketOptions& options) : options_(options) {
  batches_ = dataset.size() / options.global_batch;
  if (batches_ == 0) {
    fail(ExitCode::data, "{} samples are less than a batch of {}, which a bucket has to fill",
         dataset.size(), options.global_batch);
  }
  choose(dataset);
}

// Puts thresholds at the quantiles of the lengths. Buckets of the same extents become one.
void Buckets::choose(const Dataset& dataset) {
  const int64_t samples = dataset.size();
  const auto fields = static_cast<int>(dataset.fields().size());
  std::vector<int64_t> lengths(static_cast<size_t>(samples), 0);
  for (int64_t sample = 0; sample < samples; ++sample) {
    for (int field = 0; field < fields; ++field) {
      lengths[static_cast<size_t>(sample)] += dataset.length(field, sample);
    }
  }
  std::vector<int64_t> sorted = lengths;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> limits;
  for (int64_t b = 1; b <= options_.count; ++b) {
    const int64_t last = std::max<int64_t>(samples * b / options_.count, 1) - 1;
    const int64_t limit = sorted[static_cast<size_t>(last)];
    if (limits.empty() || limit > limits.back()) limits.push_back(limit);
  }
  const auto bucket_of = [&](int64_t sample) {
    return std::lower_bound(limits.begin(), limits.end(), lengths[static_cast<size_t>(sample)]) -
           limits.begin();
  };
  Extents greatest(limits.size(), std::vector<int64_t>(static_cast<size_t>(fields), 0));
  for (int64_t sample = 0; sample < samples; ++sample) {
    auto& extents = greatest[static_cast<size_t>(bucket_of(sample))];
    for (int field = 0; field < fields; ++field) {
      int64_t& extent = extents[static_cast<size_t>(field)];
      extent = std::max(extent, dataset.length(field, sample));
    }
  }
  // A batch at a border also has samples of the previous bucket.
  std::vector<uint8_t> merged(limits.size());
  for (size_t b = 0; b < greatest.size(); ++b) {
    std::vector<int64_t> extents = greatest[b];
    for (int field = 0; field < fields; ++field) {
      const auto f = static_cast<size_t>(field);
      const Shape& whole = dataset.fields()[f].sample.shape;
      if (whole.rank() == 0) continue;
      extents[f] = std::min((extents[f] + kMultiple - 1) / kMultiple * kMultiple, whole[0]);
      if (!extents_.empty()) extents[f] = std::max(extents[f], extents_.back()[f]);
    }
    if (extents_.empty() || extents != extents_.back()) extents_.push_back(extents);
    merged[b] = static_cast<uint8_t>(extents_.size() - 1);
  }
  bucket_.resize(static_cast<size_t>(samples));
  begins_.assign(extents_.size() + 1, 0);
  for (int64_t sample = 0; sample < samples; ++sample) {
    const uint8_t bucket = merged[static_cast<size_t>(bucket_of(sample))];
    bucket_[static_cast<size_t>(sample)] = bucket;
    ++begins_[bucket + size_t{1}];
  }
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
}

size_t Buckets::variant_of_batch(int64_t batch) const {
  const int64_t last = (batch + 1) * options_.global_batch - 1;
  return static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), last) -
                             begins_.begin() - 1);
}

int64_t Buckets::batch(int64_t step) const {
  const int64_t index = step % batches_;
  if (!options_.shuffle) return index;
  const Permutation order(static_cast<uint64_t>(batches_), options_.seed ^ kBatchStream,
                          static_cast<uint64_t>(step / batches_));
  return static_cast<int64_t>(order(static_cast<uint64_t>(index)));
}

size_t Buckets::variant(int64_t step) const {
  return variant_of_batch(batch(step));
}

std::vector<int64_t> Buckets::steps_of_variants() const {
  std::vector<int64_t> steps(extents_.size(), 0);
  for (int64_t b = 0; b < batches_; ++b) ++steps[variant_of_batch(b)];
  return steps;
}

void Buckets::fill_order(int64_t epoch, std::vector<int64_t>& order) const {
  const auto samples = static_cast<int64_t>(bucket_.size());
  order.resize(bucket_.size());
  int64_t next[256];
  std::copy(begins_.begin(), begins_.end() - 1, next);
  const Permutation shuffled(static_cast<uint64_t>(samples), options_.seed,
                             static_cast<uint64_t>(epoch));
  for (int64_t index = 0; index < samples; ++index) {
    const int64_t sample =
        options_.shuffle ? static_cast<int64_t>(shuffled(static_cast<uint64_t>(index))) : index;
    order[static_cast<size_t>(next[bucket_[static_cast<size_t>(sample)]]++)] = sample;
  }
}

}  // namespace dltrain

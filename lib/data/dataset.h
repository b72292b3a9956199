// A Dataset is a numbered sequence of samples: the interface of training and evaluation to data of
// any format.
//
// A sample has one or more inputs and one target, each a dense tensor of fixed shape in f32 or i32
// (i32: class labels, token ids). The loss ignores i32 targets with the value kIgnoredLabel.
//
// Threads: a Dataset is immutable, so any number of threads may read it. Errors: data is checked
// when a dataset is opened (Error(data) with file, row and column); reading a sample does not fail
// unless a format documents it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "data/schema.h"
#include "data/source_mix.h"
#include "tensor/shape.h"
#include "text/tokenizer.h"

namespace dltrain {

inline constexpr int32_t kIgnoredLabel = -100;

// The default names of the fields.
inline constexpr const char* kInputField = "input";
inline constexpr const char* kTargetField = "target";
// An input that layers use without being asked to (LayerContext::document_positions()).
inline constexpr const char* kDocumentPositions = "document_positions";

struct FieldSpec {
  std::string name;
  TensorSpec sample;  // of one sample: without the batch dimension
  bool operator==(const FieldSpec&) const = default;
};

// Identifies one use of a sample in training: random changes of samples are functions of it.
// `position` counts samples from the start of training.
struct SampleVisit {
  uint64_t seed = 0;
  int64_t position = 0;
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  // Number of samples, at least 1.
  virtual int64_t size() const = 0;
  // The inputs, then the target as the last.
  virtual const std::vector<FieldSpec>& fields() const = 0;
  // Copies a field of the given samples contiguously to `out`, which has room for
  // samples.size() * fields()[field].sample.bytes() bytes. `first`: with the random changes of
  // training, for this visit of the first sample and consecutive positions; null: as in evaluation.
  virtual void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
                    std::byte* out) const = 0;
  void gather(int field, std::span<const int64_t> samples, std::byte* out) const {
    read(field, samples, nullptr, out);
  }
  void gather_training(int field, std::span<const int64_t> samples, const SampleVisit& first,
                       std::byte* out) const {
    read(field, samples, &first, out);
  }
  // Returns true if reading is expensive (decoding or changing images), so that several threads
  // should share it.
  virtual bool is_expensive() const { return false; }

  // Returns false if the data has no targets. Their values are then meaningless (labels:
  // kIgnoredLabel), and the data is for predictions only.
  virtual bool has_targets() const { return true; }
  // Returns the number of targets of a sample that count in the loss, if it is known to be the same
  // for all samples, in training and in evaluation: of f32 targets those that are not NaN, of
  // labels those that are not kIgnoredLabel.
  virtual std::optional<int64_t> uniform_valid_targets() const = 0;

  // Returns the length of a field without padding, along its first axis: the whole length if the
  // dataset does not know it, 0 for a scalar field. Cutting off the padding of inputs and targets
  // does not change the loss.
  virtual int64_t length(int field, int64_t sample) const;

  // The largest label plus one; 0 for a regression target.
  virtual int64_t label_bound() const = 0;
  // The largest possible id of an i32 field plus one, if it is known without reading every sample.
  virtual std::optional<int64_t> id_bound(int /*field*/) const { return {}; }
  // The tokenizer of text data; null if there is none or it is unknown.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const { return nullptr; }
  // Returns id_bound(), or the largest id plus one after reading every sample.
  int64_t find_id_bound(int field) const;
  // The names of the labels 0, 1, …; empty if they are unknown.
  virtual const std::vector<std::string>& class_names() const;
  // The schema that training records for later data; may be null.
  virtual std::shared_ptr<const DataSchema> schema() const { return nullptr; }
  // The sources that make up the data; null: one.
  virtual const SourceMix* sources() const { return nullptr; }
  // Hashes the stored inputs of a sample, without transforms: duplicates have equal hashes.
  virtual void hash_inputs(int64_t sample, Hasher& hasher) const;
  // The source of a sample: "digits.csv.gz:17", "batches.safetensors, sample 16".
  virtual std::string location_of(int64_t sample) const = 0;

  // These throw Error(data) naming the first sample that fails the check. They read all samples if
  // the bounds above do not settle it.
  //
  // Checks that all labels are below `classes`, the number of outputs.
  void check_labels(int64_t classes) const;
  // Checks that an i32 field is within [0, bound).
  void check_ids(int field, int64_t bound) const;
  // Checks that f32 targets are within [least, most] or NaN.
  void check_targets(float least, float most) const;
  // Checks that f32 targets are distributions: groups of `classes` shares of 0 to 1 that add up to
  // 1 within the rounding of 16-bit formats. NaN marks a target that does not count.
  void check_distributions(int64_t classes) const;

  int target_field() const { return static_cast<int>(fields().size()) - 1; }
};

// Calls use(sample, values) with a field of every sample in order. T: float or int32_t, the type of
// the field.
template <typename T, typename Use>
void for_each_sample(const Dataset& data, int field, const Use& use) {
  const TensorSpec& spec = data.fields()[static_cast<size_t>(field)].sample;
  check_internal(spec.dtype == (std::is_same_v<T, float> ? DType::f32 : DType::i32),
                 "field {} is {}", field, to_string(spec));
  std::vector<T> values(static_cast<size_t>(spec.shape.elements()));
  for (int64_t sample = 0; sample < data.size(); ++sample) {
    data.gather(field, {&sample, 1}, reinterpret_cast<std::byte*>(values.data()));
    use(sample, std::span<const T>(values));
  }
}

// A dataset based on another one. Derived classes override what differs.
class DatasetWrapper : public Dataset {
 public:
  explicit DatasetWrapper(std::shared_ptr<const Dataset> whole) : whole_(std::move(whole)) {}

  int64_t size() const override { return whole_->size(); }
  const std::vector<FieldSpec>& fields() const override { return whole_->fields(); }
  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override {
    whole_->read(field, samples, first, out);
    change(field, samples.size(), out);
  }
  bool is_expensive() const override { return whole_->is_expensive(); }
  bool has_targets() const override { return whole_->has_targets(); }
  std::optional<int64_t> uniform_valid_targets() const override {
    return whole_->uniform_valid_targets();
  }
  int64_t length(int field, int64_t sample) const override { return whole_->length(field, sample); }
  int64_t label_bound() const override { return whole_->label_bound(); }
  std::optional<int64_t> id_bound(int field) const override { return whole_->id_bound(field); }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return whole_->tokenizer(); }
  const std::vector<std::string>& class_names() const override { return whole_->class_names(); }
  std::shared_ptr<const DataSchema> schema() const override { return whole_->schema(); }
  const SourceMix* sources() const override { return whole_->sources(); }
  void hash_inputs(int64_t sample, Hasher& hasher) const override {
    whole_->hash_inputs(sample, hasher);
  }
  std::string location_of(int64_t sample) const override { return whole_->location_of(sample); }

 protected:
  const Dataset& whole() const { return *whole_; }
  // Changes the values of `samples` gathered samples in place.
  virtual void change(int /*field*/, size_t /*samples*/, std::byte* /*out*/) const {}

 private:
  std::shared_ptr<const Dataset> whole_;
};

// A selection of the samples of another dataset: sample i is its sample number_of(i).
class DatasetSubset : public DatasetWrapper {
 public:
  using NumberOf = std::function<int64_t(int64_t)>;
  DatasetSubset(std::shared_ptr<const Dataset> whole, int64_t count, NumberOf number_of)
      : DatasetWrapper(std::move(whole)), count_(count), number_of_(std::move(number_of)) {}

  int64_t size() const override { return count_; }
  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override;
  int64_t length(int field, int64_t sample) const override {
    return whole().length(field, number_of_(sample));
  }
  const SourceMix* sources() const override { return nullptr; }
  void hash_inputs(int64_t sample, Hasher& hasher) const override {
    whole().hash_inputs(number_of_(sample), hasher);
  }
  std::string location_of(int64_t sample) const override {
    return whole().location_of(number_of_(sample));
  }

 private:
  int64_t count_;
  NumberOf number_of_;
};

// Samples [first, first + count) of another dataset.
std::shared_ptr<const Dataset> slice(std::shared_ptr<const Dataset> whole, int64_t first,
                                     int64_t count);

// The given samples of another dataset, in that order. `samples` is not empty.
std::shared_ptr<const Dataset> select(std::shared_ptr<const Dataset> whole,
                                      std::vector<int64_t> samples);

// The same samples without targets: has_targets() is false, and the target field has values that do
// not count, of the spec `target` (absent: that of `whole`).
std::shared_ptr<const Dataset> without_targets(std::shared_ptr<const Dataset> whole,
                                               const std::optional<TensorSpec>& target = {});

struct DataSplit {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> eval;
};

// Holds out the last round(fraction * size) samples, at least one, for evaluation. Throws
// Error(data) if a split would be empty.
DataSplit split_off_eval(std::shared_ptr<const Dataset> whole, double eval_fraction);

}  // namespace dltrain

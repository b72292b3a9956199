// A Dataset: samples of known shape, found by their number. Whatever the files look like, training
// and evaluation see only this.
//
// A sample has one or more inputs and one target, each a dense tensor of fixed shape in f32 or i32
// (i32: class labels, token ids). In i32 targets kIgnoredLabel marks what the loss leaves out.
//
// Threads: a Dataset does not change after it was opened; any number of threads may read it.
// Errors: everything is checked when a dataset is opened (Error(data) with file, row and column);
// reading a sample cannot fail, except where a format says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "data/schema.h"
#include "tensor/shape.h"
#include "text/tokenizer.h"

namespace dltrain {

inline constexpr int32_t kIgnoredLabel = -100;

// The names of a field where a file does not give others.
inline constexpr const char* kInputField = "input";
inline constexpr const char* kTargetField = "target";

struct FieldSpec {
  std::string name;
  TensorSpec sample;  // of one sample: without the batch dimension
};

// What distinguishes one visit of a sample in training from the others: random changes of samples
// are functions of it. `position` counts samples in the order of training, from its start.
struct Visit {
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
  // Copies field `field` of the given samples, one behind the other, to `out`, which has room for
  // samples.size() * fields()[field].sample.bytes().
  virtual void gather(int field, std::span<const int64_t> samples, std::byte* out) const = 0;

  // The same as training sees it: with random changes, if the dataset has any. The samples stand
  // at the positions from `first` on.
  virtual void gather_training(int field, std::span<const int64_t> samples, const Visit& /*first*/,
                               std::byte* out) const {
    gather(field, samples, out);
  }
  // Whether reading takes work (decoding, changing images), which several threads should share.
  virtual bool takes_work() const { return false; }

  // false: the data has no targets, and those that are read mean nothing (labels: kIgnoredLabel).
  // Good for predictions only.
  virtual bool has_targets() const { return true; }
  // How many targets of a sample count in the loss: every number of an f32 target, every label of
  // an i32 target that is not kIgnoredLabel (1 for one label, up to the number of tokens for
  // sequences).
  virtual int64_t valid_targets(int64_t sample) const = 0;
  // The same number where it is one for all samples.
  virtual std::optional<int64_t> uniform_valid_targets() const = 0;

  // How much of a sample's field is no padding, along its first axis; all of it where the dataset
  // does not know, 0 for a field of one number. What lies behind it can be cut off, where targets
  // are cut off with it, without a change of the loss.
  virtual int64_t length(int field, int64_t sample) const;

  // One more than the largest label; 0 for a regression target.
  virtual int64_t label_bound() const = 0;
  // One more than the largest id that i32 field `field` can hold, where the dataset knows it
  // without looking at every sample.
  virtual std::optional<int64_t> id_bound(int /*field*/) const { return {}; }
  // What made the ids of text; null for other data, and where it is not known.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const { return nullptr; }
  // id_bound(), or where the dataset does not know, one more than the greatest id: reads every
  // sample.
  int64_t find_id_bound(int field) const;
  // What the labels 0, 1, … are called; empty where the data does not say.
  virtual const std::vector<std::string>& class_names() const;
  // What the data means to a model that is trained on it, besides the class names; null where there
  // is nothing to say.
  virtual std::shared_ptr<const DataSchema> schema() const { return nullptr; }
  // What tells a sample's inputs from those of others, as they are stored: equal for duplicates,
  // whatever transforms are laid over them.
  virtual void hash_inputs(int64_t sample, Hasher& hasher) const;
  // Where a sample came from: "digits.csv.gz:17", "batches.safetensors, sample 16".
  virtual std::string place_of(int64_t sample) const = 0;

  // Throws Error(data) naming the first sample whose label does not fit `classes` outputs. Quick
  // where all fit.
  void check_labels(int64_t classes) const;
  // Throws Error(data) naming the first sample whose i32 field `field` holds a number outside
  // [0, bound). Reads every sample, unless id_bound() says enough.
  void check_ids(int field, int64_t bound) const;

  // Throws Error(data) naming the first sample with an f32 target outside [least, most]. Reads
  // every target.
  void check_targets(float least, float most) const;

  int target_field() const { return static_cast<int>(fields().size()) - 1; }
};

// A dataset over another one, of which it changes a part: whatever a derived class leaves alone is
// that of the other.
class DatasetOver : public Dataset {
 public:
  explicit DatasetOver(std::shared_ptr<const Dataset> whole) : whole_(std::move(whole)) {}

  int64_t size() const override { return whole_->size(); }
  const std::vector<FieldSpec>& fields() const override { return whole_->fields(); }
  void gather(int field, std::span<const int64_t> samples, std::byte* out) const override {
    whole_->gather(field, samples, out);
  }
  void gather_training(int field, std::span<const int64_t> samples, const Visit& first,
                       std::byte* out) const override {
    whole_->gather_training(field, samples, first, out);
  }
  bool takes_work() const override { return whole_->takes_work(); }
  bool has_targets() const override { return whole_->has_targets(); }
  int64_t valid_targets(int64_t sample) const override { return whole_->valid_targets(sample); }
  std::optional<int64_t> uniform_valid_targets() const override {
    return whole_->uniform_valid_targets();
  }
  int64_t length(int field, int64_t sample) const override { return whole_->length(field, sample); }
  int64_t label_bound() const override { return whole_->label_bound(); }
  std::optional<int64_t> id_bound(int field) const override { return whole_->id_bound(field); }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return whole_->tokenizer(); }
  const std::vector<std::string>& class_names() const override { return whole_->class_names(); }
  std::shared_ptr<const DataSchema> schema() const override { return whole_->schema(); }
  void hash_inputs(int64_t sample, Hasher& hasher) const override {
    whole_->hash_inputs(sample, hasher);
  }
  std::string place_of(int64_t sample) const override { return whole_->place_of(sample); }

 protected:
  const Dataset& whole() const { return *whole_; }

 private:
  std::shared_ptr<const Dataset> whole_;
};

// Samples [first, first + count) of another dataset.
std::shared_ptr<const Dataset> slice(std::shared_ptr<const Dataset> whole, int64_t first,
                                     int64_t count);

// The given samples of another dataset, in that order. `samples`: not empty, numbers of `whole`.
std::shared_ptr<const Dataset> select(std::shared_ptr<const Dataset> whole,
                                      std::vector<int64_t> samples);

// The same samples, of which has_targets() says that they have none.
std::shared_ptr<const Dataset> without_targets(std::shared_ptr<const Dataset> whole);

struct DataSplit {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> eval;
};

// Holds the last round(fraction * size) samples, at least one, out for evaluation. Throws
// Error(data) where one of the two would be empty.
DataSplit split_off_eval(std::shared_ptr<const Dataset> whole, double eval_fraction);

}  // namespace dltrain

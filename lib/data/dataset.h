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

#include "tensor/shape.h"

namespace dltrain {

inline constexpr int32_t kIgnoredLabel = -100;

// The names of a field where a file does not give others.
inline constexpr const char* kInputField = "input";
inline constexpr const char* kTargetField = "target";

struct FieldSpec {
  std::string name;
  TensorSpec sample;  // of one sample: without the batch dimension
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

  // How many targets of a sample count in the loss: every number of an f32 target, every label of
  // an i32 target that is not kIgnoredLabel (1 for one label, up to the number of tokens for
  // sequences).
  virtual int64_t valid_targets(int64_t sample) const = 0;
  // The same number where it is one for all samples.
  virtual std::optional<int64_t> uniform_valid_targets() const = 0;

  // One more than the largest label; 0 for a regression target.
  virtual int64_t label_bound() const = 0;
  // Where a sample came from: "digits.csv.gz:17", "batches.safetensors, sample 16".
  virtual std::string place_of(int64_t sample) const = 0;

  // Throws Error(data) naming the first sample whose label does not fit `classes` outputs. Quick
  // where all fit.
  void check_labels(int64_t classes) const;
  // Throws Error(data) naming the first sample whose i32 field `field` holds a number outside
  // [0, bound). Reads every sample.
  void check_ids(int field, int64_t bound) const;

  int target_field() const { return static_cast<int>(fields().size()) - 1; }
};

// Samples [first, first + count) of another dataset.
std::shared_ptr<const Dataset> slice(std::shared_ptr<const Dataset> whole, int64_t first,
                                     int64_t count);

struct DataSplit {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> eval;
};

// Holds the last round(fraction * size) samples, at least one, out for evaluation. Throws
// Error(data) where one of the two would be empty.
DataSplit split_off_eval(std::shared_ptr<const Dataset> whole, double eval_fraction);

}  // namespace dltrain

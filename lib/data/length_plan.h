// Steps with shorter samples than those of the dataset, which saves computation:
//
//   buckets     a batch has samples of similar length, cut to the longest of their bucket, so that
//               only padding is cut off
//   curriculum  training begins with the first tokens of each sample and continues with more
//
// All micro-batches of a step on all ranks have one length. Each length is a variant with its own
// plan. The variant of a step is a function of seed and step, so a resumed run continues in the
// same order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/permutation.h"

namespace dltrain {

class Buckets;

class LengthPlan {
 public:
  // The extent of the first axis of a sample, by variant in ascending order and by field; 0 for
  // scalar fields.
  using Extents = std::vector<std::vector<int64_t>>;

  virtual ~LengthPlan() = default;
  const Extents& extents() const { return extents_; }
  // Returns the fields of the samples of a variant.
  std::vector<FieldSpec> fields(const Dataset& dataset, size_t variant) const;

  virtual size_t variant(int64_t step) const = 0;
  // Returns true if targets that count are cut off.
  virtual bool cuts_targets() const = 0;
  // The buckets if they define the order of samples, or nullptr.
  virtual const Buckets* buckets() const { return nullptr; }

 protected:
  Extents extents_;
};

struct CurriculumOptions {
  int64_t from = 0;   // tokens of the first steps
  int64_t steps = 0;  // until the samples have full length
  int64_t stages = 4;
};

// Lengths grow evenly in `stages` stages. Except for the first and the last they are multiples
// of 8. All fields of the dataset must be sequences of one length, and every target must count.
std::shared_ptr<const LengthPlan> make_curriculum(const Dataset& dataset,
                                                  const CurriculumOptions& options);

struct BucketOptions {
  int64_t count = 1;
  int64_t global_batch = 1;
  uint64_t seed = 0;
  bool shuffle = true;
};

// Buckets of about equal size by the sum of the lengths of a sample's fields (Dataset::length). In
// each epoch the samples are shuffled within their buckets and cut into batches from the shortest
// to the longest (a batch across a border belongs to the longer bucket), and the batches are
// shuffled. The last samples of the order that do not fill a batch are left out; they differ
// between epochs.
class Buckets final : public LengthPlan {
 public:
  // Throws Error(data) if the samples do not fill a batch.
  Buckets(const Dataset& dataset, const BucketOptions& options);

  size_t variant(int64_t step) const override;
  bool cuts_targets() const override { return false; }
  const Buckets* buckets() const override { return this; }

  int64_t batches() const { return batches_; }  // of an epoch
  // Returns the number of steps of each variant in an epoch.
  std::vector<int64_t> steps_of_variants() const;
  int64_t global_batch() const { return options_.global_batch; }
  // Returns the batch, in the order of its epoch, of a step.
  int64_t batch(int64_t step) const;
  // Writes the samples of all batches of an epoch in order.
  void fill_order(int64_t epoch, std::vector<int64_t>& order) const;

 private:
  void choose(const Dataset& dataset);
  size_t variant_of_batch(int64_t batch) const;

  BucketOptions options_;
  std::vector<uint8_t> bucket_;  // of each sample
  std::vector<int64_t> begins_;  // of each bucket, among the samples in order of their buckets
  int64_t batches_ = 0;
};

}  // namespace dltrain

// Steps whose samples are shorter than those of the dataset, so that less is computed on padding:
//
//   buckets     samples of like length stand in a batch together, and are as long as the longest of
//               their bucket; what is cut off is padding only
//   curriculum  training begins with the first tokens of each sample, and goes on with more
//
// All micro-batches of a step, on all ranks, have one length. Each length that occurs is a variant
// with a plan of its own. Which variant a step has is a function of seed and step, so a resumed run
// goes on in the same order.
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
  // By variant, the shortest first, and by field: the extent of the first axis of a sample; 0 for
  // fields of one number.
  using Extents = std::vector<std::vector<int64_t>>;

  virtual ~LengthPlan() = default;
  const Extents& extents() const { return extents_; }
  // Fields of the samples of a variant.
  std::vector<FieldSpec> fields(const Dataset& dataset, size_t variant) const;

  virtual size_t variant(int64_t step) const = 0;
  // Whether targets that count are cut off, too.
  virtual bool cuts_targets() const = 0;
  // The order that comes with the variants; nullptr: any.
  virtual const Buckets* buckets() const { return nullptr; }

 protected:
  Extents extents_;
};

struct CurriculumOptions {
  int64_t from = 0;   // tokens of the first steps
  int64_t steps = 0;  // after so many the samples are whole
  int64_t stages = 4;
};

// Lengths grow evenly in `stages` stages, and are multiples of 8 where they are not the first or
// the last. Every field of the dataset is a sequence of one length, and every target counts.
std::shared_ptr<const LengthPlan> make_curriculum(const Dataset& dataset,
                                                  const CurriculumOptions& options);

struct BucketOptions {
  int64_t count = 1;
  int64_t global_batch = 1;
  uint64_t seed = 0;
  bool shuffle = true;
};

// Buckets with about as many samples each, by the sum of the lengths of a sample's fields
// (Dataset::length). In each epoch the samples are shuffled within their buckets, cut into batches
// from the shortest to the longest (a batch at a border belongs to the longer bucket), and the
// batches are shuffled. The last samples of the order, fewer than a batch, are left out; they are
// others in each epoch.
class Buckets final : public LengthPlan {
 public:
  // Throws Error(data) where the samples do not fill a batch.
  Buckets(const Dataset& dataset, const BucketOptions& options);

  size_t variant(int64_t step) const override;
  bool cuts_targets() const override { return false; }
  const Buckets* buckets() const override { return this; }

  int64_t batches() const { return batches_; }  // of an epoch
  // Steps of an epoch of each variant.
  std::vector<int64_t> steps_of_variants() const;
  int64_t global_batch() const { return options_.global_batch; }
  // Which batch of the order of its epoch comes at a step.
  int64_t batch(int64_t step) const;
  // Writes the samples of all batches of an epoch, one batch behind another.
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

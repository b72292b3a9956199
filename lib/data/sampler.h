// The order of training: an endless stream of samples, of which step s takes the positions
// [s * B, (s + 1) * B) for a global batch of B. Epochs follow one another without a gap: a batch
// may lie across their border, and every sample comes exactly once an epoch. Any position can be
// looked up at once, so a resumed run, another rank layout or another micro-batch size sees the
// same order.
//
// Where samples stand in buckets of like length (data/length_plan.h), an epoch is that of the
// buckets.
//
// Balanced: every run of K positions, for K classes that have samples, holds each class once, in a
// random order; the samples of a class come in turn, in an order of their own that changes with
// each round through them. An epoch is still as many positions as there are samples.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/length_plan.h"
#include "data/permutation.h"

namespace dltrain {

enum class SampleOrder : uint8_t { file, shuffled, balanced };

// The samples of each class that has any.
using ClassLists = std::vector<std::vector<int64_t>>;

// Throws Error(data) where samples do not have one label each.
ClassLists samples_by_class(const Dataset& dataset);

class Sampler {
 public:
  // `classes`: for SampleOrder::balanced, shared by the samplers of all threads. `buckets`: whose
  // order it is then; must outlive the sampler.
  Sampler(int64_t samples, uint64_t seed, SampleOrder order,
          std::shared_ptr<const ClassLists> classes = nullptr, const Buckets* buckets = nullptr)
      : samples_(samples),
        seed_(seed),
        kind_(order),
        classes_(std::move(classes)),
        buckets_(buckets),
        order_(static_cast<uint64_t>(samples), seed, 0) {}

  int64_t samples() const { return samples_; }
  int64_t epoch(int64_t position) const { return position / samples_; }

  // Which sample stands at a position. Not const: the order of the last epoch asked for is kept.
  int64_t index(int64_t position) {
    if (buckets_ != nullptr) return in_bucket(position);
    if (kind_ == SampleOrder::balanced) return balanced(position);
    const int64_t place = position % samples_;
    if (kind_ == SampleOrder::file) return place;
    const int64_t wanted = position / samples_;
    if (wanted != epoch_) {
      order_ = Permutation(static_cast<uint64_t>(samples_), seed_, static_cast<uint64_t>(wanted));
      epoch_ = wanted;
    }
    return static_cast<int64_t>(order_(static_cast<uint64_t>(place)));
  }

 private:
  int64_t balanced(int64_t position) const;
  int64_t in_bucket(int64_t position);

  int64_t samples_;
  uint64_t seed_;
  SampleOrder kind_;
  std::shared_ptr<const ClassLists> classes_;
  const Buckets* buckets_;
  std::vector<int64_t> batches_;  // the buckets' order of epoch_
  Permutation order_;
  int64_t epoch_ = 0;
};

}  // namespace dltrain

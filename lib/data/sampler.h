// The order of training: an endless stream of samples. With a global batch of B, step s uses the
// positions [s * B, (s + 1) * B). Epochs follow without a gap: a batch may span two epochs, and
// every sample occurs exactly once per epoch. Any position can be computed directly, so a resumed
// run, another rank layout or another micro-batch size sees the same order.
//
// With several sources, the epochs of each source follow its own order, and source_mix.h gives the
// source of each position.
//
// With buckets of similar length (data/length_plan.h), the buckets define the epochs.
//
// Balanced: each run of K positions, for K classes with samples, has each class once, in a random
// order; the samples of a class take turns in an order that changes after each round. An epoch
// still has as many positions as there are samples.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/length_plan.h"
#include "data/permutation.h"
#include "data/source_mix.h"

namespace dltrain {

enum class SampleOrder : uint8_t { file, shuffled, balanced };

// The samples of each class that has samples.
using ClassLists = std::vector<std::vector<int64_t>>;

// f32 targets are classes if they are 0 or 1. Throws Error(data) if samples do not have one label
// each.
ClassLists samples_by_class(const Dataset& dataset);

class Sampler {
 public:
  // `classes` is for SampleOrder::balanced and shared by the samplers of all threads. `buckets` or
  // `mix`, if not null, defines the order and must outlive the sampler.
  Sampler(int64_t samples, uint64_t seed, SampleOrder order,
          std::shared_ptr<const ClassLists> classes = nullptr, const Buckets* buckets = nullptr,
          const SourceMix* mix = nullptr)
      : samples_(samples),
        seed_(seed),
        kind_(order),
        classes_(std::move(classes)),
        buckets_(buckets),
        mix_(mix),
        order_(static_cast<uint64_t>(samples), seed, 0) {
    if (mix == nullptr) return;
    for (size_t k = 0; k < mix->sources().size(); ++k) {
      parts_.emplace_back(mix->sources()[k].samples, SourceMix::seed_of(seed, k), order);
    }
  }

  // Returns the sample at a position. Not const: caches the order of the last epoch.
  int64_t index(int64_t position) {
    if (buckets_ != nullptr) return in_bucket(position);
    if (mix_ != nullptr) return in_source(position);
    if (kind_ == SampleOrder::balanced) return balanced(position);
    const int64_t epoch_index = position % samples_;
    if (kind_ == SampleOrder::file) return epoch_index;
    const int64_t wanted = position / samples_;
    if (wanted != epoch_) {
      order_ = Permutation(static_cast<uint64_t>(samples_), seed_, static_cast<uint64_t>(wanted));
      epoch_ = wanted;
    }
    return static_cast<int64_t>(order_(static_cast<uint64_t>(epoch_index)));
  }

 private:
  int64_t balanced(int64_t position) const;
  int64_t in_bucket(int64_t position);
  int64_t in_source(int64_t position) {
    const auto [source, number] = mix_->at(position);
    return mix_->begin_of(source) + parts_[source].index(number);
  }

  int64_t samples_;
  uint64_t seed_;
  SampleOrder kind_;
  std::shared_ptr<const ClassLists> classes_;
  const Buckets* buckets_;
  const SourceMix* mix_;
  std::vector<Sampler> parts_;    // of the sources
  std::vector<int64_t> batches_;  // the buckets' order of epoch_
  Permutation order_;
  int64_t epoch_ = 0;
};

}  // namespace dltrain

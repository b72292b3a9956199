// The order of training: an endless stream of samples, of which step s takes the positions
// [s * B, (s + 1) * B) for a global batch of B. Epochs follow one another without a gap: a batch
// may lie across their border, and every sample comes exactly once an epoch. Any position can be
// looked up at once, so a resumed run, another rank layout or another micro-batch size sees the
// same order.
#pragma once

#include <cstdint>

#include "data/permutation.h"

namespace dltrain {

class Sampler {
 public:
  // `shuffle` false: file order in every epoch.
  Sampler(int64_t samples, uint64_t seed, bool shuffle)
      : samples_(samples),
        seed_(seed),
        shuffle_(shuffle),
        order_(static_cast<uint64_t>(samples), seed, 0) {}

  int64_t samples() const { return samples_; }
  int64_t epoch(int64_t position) const { return position / samples_; }

  // Which sample stands at a position. Not const: the order of the last epoch asked for is kept.
  int64_t index(int64_t position) {
    const int64_t place = position % samples_;
    if (!shuffle_) return place;
    const int64_t wanted = position / samples_;
    if (wanted != epoch_) {
      order_ = Permutation(static_cast<uint64_t>(samples_), seed_, static_cast<uint64_t>(wanted));
      epoch_ = wanted;
    }
    return static_cast<int64_t>(order_(static_cast<uint64_t>(place)));
  }

 private:
  int64_t samples_;
  uint64_t seed_;
  bool shuffle_;
  Permutation order_;
  int64_t epoch_ = 0;
};

}  // namespace dltrain

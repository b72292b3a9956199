// mixup and cutmix: training samples blended in pairs, their targets with them (Zhang et al.,
// "mixup: beyond empirical risk minimization", ICLR 2018; Yun et al., "CutMix", ICCV 2019).
//
// The sample at place i of the global batch is mixed with that at place i + 1, the last with the
// first: partners, shares and boxes follow from the position in the order of training, whatever the
// micro-batch and the number of ranks. Targets become distributions over the classes; metrics that
// count right answers compare with the likeliest class.
#pragma once

#include <cstdint>

#include "tensor/shape.h"

namespace dltrain {

struct MixingOptions {
  struct Kind {
    double alpha = 0;  // of the Beta(alpha, alpha) that the share is drawn from; 0: off
    double probability = 1;
    bool operator==(const Kind&) const = default;
  };
  Kind mixup, cutmix;  // where both are on, each sample gets one or the other, with equal chances

  bool active() const { return mixup.alpha > 0 || cutmix.alpha > 0; }
};

// How one sample is mixed with its partner.
struct Mix {
  enum class Kind : uint8_t { none, mixup, cutmix } kind = Kind::none;
  float share = 1;  // of the sample itself; the rest is the partner's
  // cutmix: the part that the partner fills, as shares of height and width, before rounding to
  // pixels.
  double y = 0, x = 0, height = 0, width = 0;
};

// A pure function of its arguments. `images`: height and width of the inputs, for the exact share
// of a box; 0 where there is no cutmix.
Mix draw_mix(const MixingOptions& options, uint64_t seed, int64_t position, int64_t height,
             int64_t width);

// Mixes one f32 sample with its partner's, in place. For cutmix it must be an image.
void mix_values(const Mix& mix, const Shape& sample, const float* partner, float* values);

// target[0 … classes) = share * (label) + (1 − share) * (partner's label).
void mix_targets(const Mix& mix, int32_t label, int32_t partner, int64_t classes, float* target);

}  // namespace dltrain

// mixup and cutmix blend pairs of training samples and their targets (Zhang et al., "mixup: beyond
// empirical risk minimization", ICLR 2018; Yun et al., "CutMix", ICCV 2019).
//
// Sample i of the global batch is mixed with sample i + 1, the last with the first. Partners,
// shares and boxes are functions of the position in the order of training, for any micro-batch and
// number of ranks. Targets become distributions over the classes; accuracy compares with the
// likeliest class.
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
  Kind mixup, cutmix;  // if both are on, each sample gets one of them with equal probability

  bool active() const { return mixup.alpha > 0 || cutmix.alpha > 0; }
};

// The mixing of one sample with its partner.
struct Mix {
  enum class Kind : uint8_t { none, mixup, cutmix } kind = Kind::none;
  float share = 1;  // of the sample itself; the rest is the partner's
  // cutmix: the box of the partner as shares of height and width, before rounding to pixels.
  double y = 0, x = 0, height = 0, width = 0;
};

// A pure function of its arguments. Height and width of the inputs determine the exact share of a
// box; 0 without cutmix.
Mix draw_mix(const MixingOptions& options, uint64_t seed, int64_t position, int64_t height,
             int64_t width);

// Mixes one f32 sample with its partner in place. cutmix needs an image.
void mix_values(const Mix& mix, const Shape& sample, const float* partner, float* values);

// target[0 … classes) = share * (label) + (1 − share) * (partner's label).
void mix_targets(const Mix& mix, int32_t label, int32_t partner, int64_t classes, float* target);

}  // namespace dltrain

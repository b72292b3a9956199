#include "data/mixing.h"

#include <algorithm>
#include <cmath>

#include "data/transform.h"

namespace dltrain {
namespace {

constexpr uint64_t kMixingStream = random_stream("data.mixing");

double draw_normal(RandomNumbers& rng) {
  const double u = 1 - rng.uniform(), v = rng.uniform();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * v);
}

// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
double draw_gamma(double shape, RandomNumbers& rng) {
  if (shape < 1) {
    const double u = 1 - rng.uniform();
    return draw_gamma(shape + 1, rng) * std::pow(u, 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = draw_normal(rng), root = 1 + c * x;
    const double u = 1 - rng.uniform();
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

double draw_beta(double alpha, RandomNumbers& rng) {
  const double a = draw_gamma(alpha, rng), b = draw_gamma(alpha, rng);
  return a + b > 0 ? a / (a + b) : 1;
}

// The pixels of a line that a box covers.
struct Span {
  int64_t first, count;
};

Span covered(double begin, double length, int64_t whole) {
  const auto n = static_cast<double>(whole);
  const int64_t first = std::clamp<int64_t>(std::llround(begin * n), 0, whole);
  const int64_t last = std::clamp<int64_t>(std::llround((begin + length) * n), 0, whole);
  return {first, last - first};
}

}  // namespace

Mix draw_mix(const MixingOptions& options, uint64_t seed, int64_t position, int64_t height,
             int64_t width) {
  RandomNumbers rng(seed, kMixingStream, position);
  const double which = rng.uniform(), whether = rng.uniform();
  const bool both = options.mixup.alpha > 0 && options.cutmix.alpha > 0;
  const bool cut = both ? which < 0.5 : options.cutmix.alpha > 0;
  const MixingOptions::Kind& kind = cut ? options.cutmix : options.mixup;
  if (kind.alpha <= 0 || whether >= kind.probability) return {};
  const double share = draw_beta(kind.alpha, rng);
  if (!cut) return {.kind = Mix::Kind::mixup, .share = static_cast<float>(share)};
  const double side = std::sqrt(1 - share);
  Mix mix{.kind = Mix::Kind::cutmix,
          .y = rng.uniform() - side / 2,
          .x = rng.uniform() - side / 2,
          .height = side,
          .width = side};
  const int64_t pixels = covered(mix.y, side, height).count * covered(mix.x, side, width).count;
  mix.share = static_cast<float>(1 - static_cast<double>(pixels) /
                                         static_cast<double>(std::max<int64_t>(height * width, 1)));
  return mix;
}

void mix_values(const Mix& mix, const Shape& sample, const float* partner, float* values) {
  if (mix.kind == Mix::Kind::mixup) {
    for (int64_t i = 0; i < sample.elements(); ++i) {
      values[i] = mix.share * values[i] + (1 - mix.share) * partner[i];
    }
  } else if (mix.kind == Mix::Kind::cutmix) {
    const int64_t channels = sample.rank() == 3 ? sample[2] : 1;
    const Span rows = covered(mix.y, mix.height, sample[0]);
    const Span columns = covered(mix.x, mix.width, sample[1]);
    for (int64_t y = rows.first; y < rows.first + rows.count; ++y) {
      const int64_t at = (y * sample[1] + columns.first) * channels;
      std::copy_n(partner + at, columns.count * channels, values + at);
    }
  }
}

void mix_targets(const Mix& mix, int32_t label, int32_t partner, int64_t classes, float* target) {
  std::fill_n(target, classes, 0.0f);
  target[label] += mix.share;
  target[partner] += 1 - mix.share;
}

}  // namespace dltrain

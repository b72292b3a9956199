#include "data/random_affine.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/philox.h"
#include "data/warp.h"

namespace dltrain {
namespace {

constexpr uint64_t kRandomAffineStream = random_stream("data.random_affine");
constexpr uint64_t kDrawsPerImage = 8;  // five are used

Affine draw_affine(const RandomAffineOptions& options, uint64_t seed, int64_t position) {
  const auto draw = [&](uint64_t number, double limit) {
    const uint64_t index = static_cast<uint64_t>(position) * kDrawsPerImage + number;
    return limit *
           (2.0 * static_cast<double>(random_uniform(seed, kRandomAffineStream, 0, index)) - 1.0);
  };
  const double angle = draw(0, options.rotate) * std::numbers::pi / 180;
  const double x_scale = 1 + draw(1, options.scale), y_scale = 1 + draw(2, options.scale);
  const double c = std::cos(angle), s = std::sin(angle);
  return {c * x_scale, -s * y_scale, draw(3, options.translate),
          s * x_scale, c * y_scale,  draw(4, options.translate)};
}

}  // namespace

void RandomAffine::apply(uint64_t seed, int64_t position, float* image,
                         std::vector<float>& memory) const {
  const Affine a = draw_affine(options_, seed, position);
  const auto elements = static_cast<size_t>(size_.elements());
  if (memory.size() < elements) memory.resize(elements);
  std::copy_n(image, elements, memory.data());
  warp<float>({memory.data(), size_, size_.width * size_.channels}, a, 0.0f, image);
}

}  // namespace dltrain

#include "data/random_affine.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/philox.h"

namespace dltrain {
namespace {

constexpr uint64_t kStream = random_stream("data.random_affine");
constexpr uint64_t kDrawsPerImage = 8;  // of which five are used

// Where the pixel (x, y) of the result, counted from the centre, is taken from.
struct Affine {
  double xx, xy, x0;
  double yx, yy, y0;
};

Affine draw_affine(const RandomAffineOptions& options, uint64_t seed, int64_t position) {
  const auto draw = [&](uint64_t number, double limit) {
    const uint64_t index = static_cast<uint64_t>(position) * kDrawsPerImage + number;
    return limit * (2.0 * static_cast<double>(random_uniform(seed, kStream, 0, index)) - 1.0);
  };
  const double angle = draw(0, options.rotate) * std::numbers::pi / 180;
  const double x_scale = 1 + draw(1, options.scale), y_scale = 1 + draw(2, options.scale);
  const double c = std::cos(angle), s = std::sin(angle);
  return {c * x_scale, -s * y_scale, draw(3, options.translate),
          s * x_scale, c * y_scale,  draw(4, options.translate)};
}

}  // namespace

RandomAffine::RandomAffine(const RandomAffineOptions& options, const Shape& image, uint64_t seed)
    : options_(options), seed_(seed) {
  if (image.rank() != 2 && image.rank() != 3) {
    fail(ExitCode::usage,
         "random_affine needs images, [height, width] or [height, width, channels]; samples are {}",
         to_string(image));
  }
  height_ = image[0];
  width_ = image[1];
  channels_ = image.rank() == 3 ? image[2] : 1;
  original_.resize(static_cast<size_t>(height_ * width_ * channels_));
}

void RandomAffine::apply(int64_t position, float* image) {
  const Affine a = draw_affine(options_, seed_, position);
  std::copy_n(image, original_.size(), original_.data());
  const double x_centre = static_cast<double>(width_ - 1) / 2;
  const double y_centre = static_cast<double>(height_ - 1) / 2;
  // Adds a neighbour's share of a pixel; neighbours outside the image have none.
  const auto add_share = [&](int64_t x, int64_t y, double share, float* out) {
    if (x < 0 || x >= width_ || y < 0 || y >= height_) return;
    const float* from = original_.data() + (y * width_ + x) * channels_;
    for (int64_t c = 0; c < channels_; ++c) out[c] += static_cast<float>(share) * from[c];
  };
  for (int64_t row = 0; row < height_; ++row) {
    for (int64_t column = 0; column < width_; ++column) {
      const double u = static_cast<double>(column) - x_centre;
      const double v = static_cast<double>(row) - y_centre;
      const double x = a.xx * u + a.xy * v + a.x0 + x_centre;
      const double y = a.yx * u + a.yy * v + a.y0 + y_centre;
      const double x_floor = std::floor(x), y_floor = std::floor(y);
      const double right = x - x_floor, below = y - y_floor;
      const auto x0 = static_cast<int64_t>(x_floor), y0 = static_cast<int64_t>(y_floor);
      float* out = image + (row * width_ + column) * channels_;
      std::fill_n(out, channels_, 0.0f);
      add_share(x0, y0, (1 - right) * (1 - below), out);
      add_share(x0 + 1, y0, right * (1 - below), out);
      add_share(x0, y0 + 1, (1 - right) * below, out);
      add_share(x0 + 1, y0 + 1, right * below, out);
    }
  }
}

}  // namespace dltrain

// Affine transforms of an image with bilinear interpolation.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "data/image.h"

namespace dltrain {

// Maps a pixel (x, y) of the result to its source; both are relative to the centre.
struct Affine {
  double xx, xy, x0;
  double yx, yy, y0;
};

// `out`: an image of the same size without gaps between rows. Pixels from outside are `fill`.
template <typename T>
void warp(const ImageView<T>& in, const Affine& a, float fill, T* out) {
  const int64_t height = in.size.height, width = in.size.width, channels = in.size.channels;
  const double x_centre = static_cast<double>(width - 1) / 2;
  const double y_centre = static_cast<double>(height - 1) / 2;
  constexpr int64_t kMaxChannels = 64;
  float sum[kMaxChannels];
  for (int64_t row = 0; row < height; ++row) {
    for (int64_t column = 0; column < width; ++column, out += channels) {
      const double u = static_cast<double>(column) - x_centre;
      const double v = static_cast<double>(row) - y_centre;
      const double x = a.xx * u + a.xy * v + a.x0 + x_centre;
      const double y = a.yx * u + a.yy * v + a.y0 + y_centre;
      const double x_floor = std::floor(x), y_floor = std::floor(y);
      const double right = x - x_floor, below = y - y_floor;
      const auto x0 = static_cast<int64_t>(x_floor), y0 = static_cast<int64_t>(y_floor);
      for (int64_t first = 0; first < channels; first += kMaxChannels) {
        const int64_t n = channels - first < kMaxChannels ? channels - first : kMaxChannels;
        for (int64_t c = 0; c < n; ++c) sum[c] = 0;
        // Adds a neighbour's share of a pixel.
        const auto add_share = [&](int64_t nx, int64_t ny, double share) {
          const bool inside = nx >= 0 && nx < width && ny >= 0 && ny < height;
          const T* from = inside ? in.at(ny, nx) + first : nullptr;
          for (int64_t c = 0; c < n; ++c) {
            sum[c] += static_cast<float>(share) * (inside ? static_cast<float>(from[c]) : fill);
          }
        };
        add_share(x0, y0, (1 - right) * (1 - below));
        add_share(x0 + 1, y0, right * (1 - below));
        add_share(x0, y0 + 1, (1 - right) * below);
        add_share(x0 + 1, y0 + 1, right * below);
        for (int64_t c = 0; c < n; ++c) {
          if constexpr (std::is_same_v<T, float>) {
            out[first + c] = sum[c];
          } else {
            out[first + c] = static_cast<T>(sum[c] < 255.0f ? sum[c] + 0.5f : 255.0f);
          }
        }
      }
    }
  }
}

}  // namespace dltrain

// The table of transforms, and functions that several kinds share. Each kind has its own file.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <string>
#include <vector>

#include "data/transform.h"

namespace dltrain {

// The transforms that replace random crops in evaluation.
std::shared_ptr<const Transform> make_resize(std::vector<int64_t> size);
std::shared_ptr<const Transform> make_center_crop(std::vector<int64_t> size, double fill);

// The key `size`: [height, width], or one number for both.
void describe_size(Fields& f, std::vector<int64_t>& size, const std::string& doc);
// The key `probability`.
void describe_probability(Fields& f, double& probability);
// The key `fill`: the value of pixels outside of the image.
void describe_fill(Fields& f, double& fill);
// Checks that scale and ratio, [least, greatest], are ordered.
void validate_patch(const ConfigObject& owner, const std::array<double, 2>& scale,
                    const std::array<double, 2>& ratio, Diagnostics& diagnostics);

inline int64_t height_of(const std::vector<int64_t>& size) {
  return size.front();
}
inline int64_t width_of(const std::vector<int64_t>& size) {
  return size.back();
}

// Converts to a pixel of type T: 8-bit values are rounded and clamped to 0 … 255.
template <typename T>
T to_pixel(double value) {
  if constexpr (std::same_as<T, uint8_t>) {
    return static_cast<uint8_t>(std::clamp(value + 0.5, 0.0, 255.0));
  } else {
    return static_cast<T>(value);
  }
}

// Crops height by width pixels from (y, x) on; pixels outside of the image become `fill`.
template <typename T>
void crop_padded(WorkingImage<T>& frame, int64_t y, int64_t x, int64_t height, int64_t width,
                 double fill) {
  const ImageView<T> in = frame.image();
  if (y >= 0 && x >= 0 && y + height <= in.size.height && x + width <= in.size.width) {
    frame.crop(y, x, height, width);
    return;
  }
  const int64_t channels = in.size.channels;
  T* out = frame.start({height, width, channels});
  std::fill_n(out, height * width * channels, to_pixel<T>(fill));
  const int64_t left = std::max<int64_t>(0, -x), right = std::min(width, in.size.width - x);
  const int64_t bottom = std::min(height, in.size.height - y);
  for (int64_t row = std::max<int64_t>(0, -y); row < bottom && left < right; ++row) {
    std::copy_n(in.at(y + row, x + left), (right - left) * channels,
                out + (row * width + left) * channels);
  }
  frame.finish();
}

// Fills a rectangle, clipped to the image.
template <typename T>
void fill_box(WorkingImage<T>& frame, int64_t y, int64_t x, int64_t height, int64_t width,
              double fill) {
  const ImageSize size = frame.size();
  const int64_t top = std::max<int64_t>(y, 0), bottom = std::min(y + height, size.height);
  const int64_t left = std::max<int64_t>(x, 0), right = std::min(x + width, size.width);
  if (top >= bottom || left >= right) return;
  T* pixels = frame.pixels();
  for (int64_t row = top; row < bottom; ++row) {
    std::fill_n(pixels + (row * size.width + left) * size.channels, (right - left) * size.channels,
                to_pixel<T>(fill));
  }
}

// Returns the size of a patch with `share` of the image's area and width : height = `ratio`.
inline std::array<int64_t, 2> patch_size(const ImageSize& size, double share, double ratio) {
  const double area = share * static_cast<double>(size.height * size.width);
  return {std::llround(std::sqrt(area / ratio)), std::llround(std::sqrt(area * ratio))};
}

}  // namespace dltrain

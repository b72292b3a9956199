// Small helpers of the tests about images.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "catch.h"
#include "data/dataset.h"
#include "data/decode.h"
#include "data/image_source.h"
#include "temporary_folder.h"

namespace dltrain {

inline std::vector<uint8_t> golden_image(const std::string& name) {
  const std::string text = slurp(std::string(DLTRAIN_SOURCE_DIR) + "/tests/golden/images/" + name);
  REQUIRE_FALSE(text.empty());
  return {text.begin(), text.end()};
}

template <typename T>
std::vector<T> pixels_of(const WorkingImage<T>& frame) {
  std::vector<T> out;
  const ImageView<T>& image = frame.image();
  for (int64_t y = 0; y < image.size.height; ++y) {
    const T* row = image.data + y * image.row;
    out.insert(out.end(), row, row + image.size.width * image.size.channels);
  }
  return out;
}

inline WorkingImage<uint8_t> decoded(const std::vector<uint8_t>& file, int64_t channels = 3,
                                     double scale = 1) {
  WorkingImage<uint8_t> frame;
  decode_image(probe_image(file), channels, scale, frame);
  return frame;
}

inline int largest_difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  REQUIRE(a.size() == b.size());
  int largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

inline std::vector<uint8_t> stored_pixels(const ImageSource& source, int64_t sample) {
  std::vector<uint8_t> buffer;
  const StoredImage image = source.read(sample, buffer);
  return {image.bytes.begin(), image.bytes.end()};
}

template <typename T>
std::vector<T> gathered(const Dataset& data, int field, std::vector<int64_t> samples) {
  std::vector<T> out(
      samples.size() *
      static_cast<size_t>(data.fields()[static_cast<size_t>(field)].sample.shape.elements()));
  data.gather(field, samples, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

}  // namespace dltrain

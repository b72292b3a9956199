// Pictures that the program makes: RGB pixels, short captions, a PNG file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dltrain {

class Picture {
 public:
  Picture(int64_t height, int64_t width, uint8_t gray);

  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  uint8_t* at(int64_t y, int64_t x) { return pixels_.data() + 3 * (y * width_ + x); }

  // Letters (all as capitals), digits and a few signs; what does not fit before `right` is left
  // out.
  void write(int64_t y, int64_t x, int64_t right, std::string_view text);

  // The bytes of a PNG file.
  std::string png() const;

  static constexpr int64_t kTextHeight = 10, kLetterWidth = 8;

 private:
  int64_t height_, width_;
  std::vector<uint8_t> pixels_;
};

// Images side by side with a caption below each. `images`: f32, one behind the other, each height
// by width by channels; each channel is stretched from its least to its greatest value to black and
// white, one or three channels are shown, of others the first. Small images are enlarged.
Picture contact_sheet(std::span<const float> images, int64_t height, int64_t width,
                      int64_t channels, const std::vector<std::string>& captions);

}  // namespace dltrain

// RGB pictures with short captions, written as PNG files.
#pragma once

#include <cstdint>
#include <filesystem>
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

  // Draws letters (as capitals), digits and a few signs; omits what does not fit before `right`.
  void write(int64_t y, int64_t x, int64_t right, std::string_view text);

  // Returns the bytes of a PNG file.
  std::string png() const;

  static constexpr int64_t kTextHeight = 10, kLetterWidth = 8;

 private:
  int64_t height_, width_;
  std::vector<uint8_t> pixels_;
};

// Returns true for a file that Picture::png() has made.
bool is_own_picture(const std::filesystem::path& path);

// Draws images side by side with a caption below each. `images`: contiguous f32 values, each image
// height by width by channels. Each channel is scaled so that its range becomes black to white. If
// an image has neither one nor three channels, the first is shown. Small images are enlarged.
Picture contact_sheet(std::span<const float> images, int64_t height, int64_t width,
                      int64_t channels, const std::vector<std::string>& captions);

}  // namespace dltrain

// Images on their way into a batch: 8-bit pixels as files have them, or f32 values of datasets that
// are numbers. Height by width by channels, channels innermost, as in batches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dltrain {

struct ImageSize {
  int64_t height = 0, width = 0, channels = 0;  // height and width 0: they differ between samples

  bool fixed() const { return height > 0 && width > 0; }
  int64_t elements() const { return height * width * channels; }
  bool operator==(const ImageSize&) const = default;
};

// Pixels that belong to somebody else. `row`: elements from the start of a row to that of the next.
template <typename T>
struct ImageView {
  const T* data = nullptr;
  ImageSize size;
  int64_t row = 0;

  const T* at(int64_t y, int64_t x) const { return data + y * row + x * size.channels; }
};

// One image and the memory to change it in. A Frame is used by one thread for one sample after
// another; its memory grows to the largest image and stays, so that later samples allocate nothing.
template <typename T>
class Frame {
 public:
  // Begins with pixels that others own and that stay as they are.
  void look_at(const ImageView<T>& image) {
    image_ = image;
    full_ = image.size;
    own_ = kNone;
  }

  const ImageView<T>& image() const { return image_; }
  const ImageSize& size() const { return image_.size; }
  // The size as it is stored: larger than size() where a JPEG was decoded at a fraction of it.
  const ImageSize& full() const { return full_; }
  bool reduced() const { return full_ != image_.size; }

  // Memory for the next image, which finish() makes the frame's; image() stays readable until then.
  T* start(const ImageSize& size) {
    next_ = size;
    std::vector<T>& buffer = buffers_[target()];
    // A little room behind: some loops store whole vectors.
    const auto needed = static_cast<size_t>(size.elements()) + kRoomBehind;
    if (buffer.size() < needed) buffer.resize(needed);
    return buffer.data();
  }
  void finish() {
    own_ = target();
    image_ = {buffers_[own_].data(), next_, next_.width * next_.channels};
    full_ = next_;
  }
  // The same for an image that was decoded at a fraction of the size `full`.
  void finish_reduced(const ImageSize& full) {
    finish();
    full_ = full;
  }

  // The pixels to change in place, row after row without gaps.
  T* pixels() {
    if (own_ == kNone || image_.data != buffers_[own_].data() ||
        image_.row != image_.size.width * image_.size.channels) {
      const ImageView<T> from = image_;
      T* to = start(from.size);
      const int64_t n = from.size.width * from.size.channels;
      for (int64_t y = 0; y < from.size.height; ++y) {
        std::copy_n(from.data + y * from.row, n, to + y * n);
      }
      finish();
    }
    return buffers_[own_].data();
  }

  // Only the part from (y, x) on; no pixel is moved. It must lie inside.
  void crop(int64_t y, int64_t x, int64_t height, int64_t width) {
    image_.data = image_.at(y, x);
    image_.size.height = height;
    image_.size.width = width;
    full_ = image_.size;
  }

  // Working memory of resample().
  std::vector<float>& scratch() { return scratch_; }

 private:
  static constexpr int kNone = -1;
  static constexpr size_t kRoomBehind = 16;

  int target() const { return own_ == 0 ? 1 : 0; }

  ImageView<T> image_;
  ImageSize full_, next_;
  int own_ = kNone;  // which buffer holds the image
  std::vector<T> buffers_[2];
  std::vector<float> scratch_;
};

}  // namespace dltrain

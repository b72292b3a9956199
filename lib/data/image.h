// Images before they are written to a batch: 8-bit pixels of files, or f32 values of datasets of
// numbers. Height by width by channels, channels innermost, as in batches.
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

// A view of pixels. `row` is the number of elements from one row to the next.
template <typename T>
struct ImageView {
  const T* data = nullptr;
  ImageSize size;
  int64_t row = 0;

  const T* at(int64_t y, int64_t x) const { return data + y * row + x * size.channels; }
};

// One image and the memory for its changes. A thread reuses its Frame for all samples; the memory
// grows to the largest image, so that later samples allocate nothing.
template <typename T>
class WorkingImage {
 public:
  // Starts with pixels of the caller, which are not changed.
  void look_at(const ImageView<T>& image) {
    image_ = image;
    full_ = image.size;
    own_ = kNone;
  }

  const ImageView<T>& image() const { return image_; }
  const ImageSize& size() const { return image_.size; }
  // The stored size: larger than size() if a JPEG was decoded at a fraction of it.
  const ImageSize& full() const { return full_; }
  bool reduced() const { return full_ != image_.size; }

  // Returns memory for the next image, which finish() makes current; image() is valid until then.
  T* start(const ImageSize& size) {
    next_ = size;
    std::vector<T>& buffer = buffers_[target()];
    // Some loops store whole vectors beyond the end.
    const auto needed = static_cast<size_t>(size.elements()) + kPadding;
    if (buffer.size() < needed) buffer.resize(needed);
    return buffer.data();
  }
  void finish() { finish(next_); }
  // `full` is the stored size of an image that was decoded at a fraction of it.
  void finish(const ImageSize& full) {
    own_ = target();
    image_ = {buffers_[own_].data(), next_, next_.width * next_.channels};
    full_ = full;
  }

  // Returns the pixels for changes in place, without gaps between rows.
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

  // Crops to a part inside the image from (y, x) on, without copying pixels.
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
  static constexpr size_t kPadding = 16;

  int target() const { return own_ == 0 ? 1 : 0; }

  ImageView<T> image_;
  ImageSize full_, next_;
  int own_ = kNone;  // which buffer holds the image
  std::vector<T> buffers_[2];
  std::vector<float> scratch_;
};

}  // namespace dltrain

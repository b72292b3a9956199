// The stored images of a dataset, each with a label. ImageDataset makes samples of them.
//
// Threads: a source is immutable, so any number of threads may read it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/decode.h"

namespace dltrain {

class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // Number of images, at least 1.
  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  // The size with the channels of the samples (1 or 3, or any for raw pixels); height and width are
  // 0 if images differ.
  virtual ImageSize image_size() const = 0;
  // Returns true if images are compressed, so that reading is expensive.
  virtual bool encoded() const = 0;
  // Returns an image as it is stored, in memory of the source or in `buffer`. Throws Error(data)
  // without a place if it reads a file.
  virtual StoredImage read(int64_t sample, std::vector<uint8_t>& buffer) const = 0;
  virtual std::string location_of(int64_t sample) const = 0;

  // The label of every image, from 0; kIgnoredLabel if it is unknown.
  const std::vector<int32_t>& labels() const { return labels_; }
  const std::vector<std::string>& class_names() const { return class_names_; }

 protected:
  // The constructors of derived classes fill these.
  std::vector<int32_t> labels_;
  std::vector<std::string> class_names_;
};

// 8-bit images of one size in contiguous memory.
class MemoryImages final : public ImageSource {
 public:
  using Locations = std::function<std::string(int64_t sample)>;

  MemoryImages(const ImageSize& size, std::vector<uint8_t> pixels, std::vector<int32_t> labels,
               std::vector<std::string> class_names, Locations locations)
      : size_(size), pixels_(std::move(pixels)), locations_(std::move(locations)) {
    labels_ = std::move(labels);
    class_names_ = std::move(class_names);
    check_internal(size_.fixed() && !labels_.empty() &&
                       pixels_.size() == labels_.size() * static_cast<size_t>(size_.elements()),
                   "{} bytes of {} images", pixels_.size(), labels_.size());
  }

  ImageSize image_size() const override { return size_; }
  bool encoded() const override { return false; }
  StoredImage read(int64_t sample, std::vector<uint8_t>&) const override {
    const auto bytes = static_cast<size_t>(size_.elements());
    const uint8_t* first = pixels_.data() + static_cast<size_t>(sample) * bytes;
    return {ImageEncoding::raw, {first, bytes}, size_};
  }
  std::string location_of(int64_t sample) const override { return locations_(sample); }

 private:
  ImageSize size_;
  std::vector<uint8_t> pixels_;
  Locations locations_;
};

}  // namespace dltrain

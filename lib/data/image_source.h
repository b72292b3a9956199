// Where the images of a dataset come from: as they are stored, each with a label. ImageDataset
// makes samples of them.
//
// Threads: a source does not change after it was opened; any number of threads may read it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/decode.h"

namespace dltrain {

class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // Number of images, at least 1.
  int64_t size() const { return static_cast<int64_t>(labels().size()); }
  // With the channels that samples shall have (1 or 3, or any for raw pixels); height and width are
  // 0 where images differ.
  virtual ImageSize image_size() const = 0;
  // Whether images are compressed, so that reading one takes work.
  virtual bool encoded() const = 0;
  // An image as it is stored, in memory of the source or in `buffer`. Throws Error(data), without a
  // place, where files are read only now.
  virtual StoredImage read(int64_t sample, std::vector<uint8_t>& buffer) const = 0;
  // 0, 1, …, of every image; kIgnoredLabel where nothing says what it shows.
  virtual const std::vector<int32_t>& labels() const = 0;
  virtual const std::vector<std::string>& class_names() const = 0;
  virtual std::string place_of(int64_t sample) const = 0;
};

// 8-bit images of one size that lie in memory, one behind the other.
class MemoryImages final : public ImageSource {
 public:
  using Places = std::function<std::string(int64_t sample)>;

  MemoryImages(const ImageSize& size, std::vector<uint8_t> pixels, std::vector<int32_t> labels,
               std::vector<std::string> class_names, Places places);

  ImageSize image_size() const override { return size_; }
  bool encoded() const override { return false; }
  StoredImage read(int64_t sample, std::vector<uint8_t>& buffer) const override;
  const std::vector<int32_t>& labels() const override { return labels_; }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::string place_of(int64_t sample) const override { return places_(sample); }

 private:
  ImageSize size_;
  std::vector<uint8_t> pixels_;
  std::vector<int32_t> labels_;
  std::vector<std::string> class_names_;
  Places places_;
};

}  // namespace dltrain

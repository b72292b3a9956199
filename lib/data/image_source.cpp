#include "data/image_source.h"

#include "base/error.h"

namespace dltrain {

MemoryImages::MemoryImages(const ImageSize& size, std::vector<uint8_t> pixels,
                           std::vector<int32_t> labels, std::vector<std::string> class_names,
                           Places places)
    : size_(size), pixels_(std::move(pixels)), places_(std::move(places)) {
  labels_ = std::move(labels);
  class_names_ = std::move(class_names);
  check_internal(size_.fixed() && !labels_.empty() &&
                     pixels_.size() == labels_.size() * static_cast<size_t>(size_.elements()),
                 "{} bytes of {} images", pixels_.size(), labels_.size());
}

StoredImage MemoryImages::read(int64_t sample, std::vector<uint8_t>&) const {
  const auto bytes = static_cast<size_t>(size_.elements());
  return {ImageEncoding::raw, {pixels_.data() + static_cast<size_t>(sample) * bytes, bytes}, size_};
}

}  // namespace dltrain

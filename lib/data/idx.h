// IDX files, as MNIST, Fashion-MNIST and EMNIST come: big-endian sizes, then 8-bit images; labels
// in a file of their own. Plain or gzip.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "data/byte_source.h"
#include "data/image_source.h"

namespace dltrain {

struct IdxOptions {
  std::string images = {}, labels = {};  // files
  std::optional<int64_t> classes = {};   // labels must be below this
};

// Reads both files whole: images [count, height, width] or [count, height, width, channels] of
// unsigned bytes, and as many labels. Throws Error(data) naming file and offset.
std::shared_ptr<const ImageSource> load_idx(const IdxOptions& options);

// The same from bytes that come from elsewhere.
std::shared_ptr<const ImageSource> load_idx(const IdxOptions& options, ByteReader images,
                                            ByteReader labels);

}  // namespace dltrain

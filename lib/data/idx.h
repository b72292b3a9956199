// IDX files of MNIST, Fashion-MNIST and EMNIST: big-endian sizes, then 8-bit images; labels in a
// separate file. Plain or gzip.
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

// Reads both files: images [count, height, width] or [count, height, width, channels] of unsigned
// bytes, and the same number of labels. Throws Error(data) with file and offset.
std::shared_ptr<const ImageSource> load_idx(const IdxOptions& options);

// Reads from any source of bytes.
std::shared_ptr<const ImageSource> load_idx(const IdxOptions& options, ByteReader images,
                                            ByteReader labels);

}  // namespace dltrain

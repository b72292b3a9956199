// Packed images: a data set in one file that is mapped into memory, written by `dltrain data
// prepare`. docs/formats.md describes the layout.
#pragma once

#include <bit>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/image_source.h"

// The records of the file, little-endian (docs/formats.md).
namespace dltrain::packed {

static_assert(std::endian::native == std::endian::little);

inline constexpr char kMagic[8] = {'D', 'L', 'T', 'I', 'M', 'A', 'G', '1'};
inline constexpr int kVersion = 1;

struct Entry {
  uint64_t offset, bytes;  // of the image, in the file
  uint32_t height, width;
  uint32_t encoding;  // ImageEncoding
  int32_t label;
};
static_assert(sizeof(Entry) == 32);

// The last bytes of the file.
struct Footer {
  uint64_t index_offset;  // of the contiguous entries
  uint64_t entries;
  uint64_t metadata_bytes;  // of the JSON text after them
  char checksum[32];        // XXH3-128 of entries and text, in hexadecimal
  char magic[8];
};
static_assert(sizeof(Footer) == 64);

}  // namespace dltrain::packed

namespace dltrain {

// Returns true if a file begins like a file of packed images.
bool is_packed_images(const std::filesystem::path& path);

// Maps a file and checks its directory: sizes, checksum, every entry. Throws Error(data).
std::shared_ptr<const ImageSource> open_packed_images(const std::filesystem::path& path);

// Writes such a file sequentially. An existing file is replaced by finish().
class PackedImagesWriter {
 public:
  // All images have `channels`, at least 1. Throws Error(storage).
  PackedImagesWriter(const std::filesystem::path& path, int64_t channels,
                     std::vector<std::string> class_names);
  ~PackedImagesWriter();

  void add(const StoredImage& image, int32_t label);
  // Returns the bytes of the file.
  uint64_t finish();

 private:
  std::filesystem::path path_, partial_;
  int64_t channels_;
  std::vector<std::string> class_names_;
  FileWriter file_;
  Hasher data_hash_;
  std::string index_;  // the entries as in the file
  int64_t samples_ = 0;
  bool finished_ = false;
};

}  // namespace dltrain

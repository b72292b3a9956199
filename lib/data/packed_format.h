// The records of a packed image file, little-endian (docs/formats.md).
#pragma once

#include <bit>
#include <cstdint>

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

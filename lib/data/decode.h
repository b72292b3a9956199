// Decodes JPEG and PNG files, recognised by their content, to 8-bit images.
//
// Hostile files: sizes above kMaxImagePixels are refused when the header is read; the memory is
// limited to the size in the header, and no write leaves it. A truncated file is an error. Colours:
// the result is gray or RGB as requested; an alpha channel is dropped, 16 bits become 8, and CMYK
// becomes RGB without a colour profile. The EXIF orientation is ignored.
//
// Threads: any number. Errors: Error(data) without a place.
#pragma once

#include <cstdint>
#include <span>

#include "data/image.h"

namespace dltrain {

enum class ImageEncoding : uint32_t { raw = 0, jpeg = 1, png = 2 };

inline constexpr int64_t kMaxImagePixels = int64_t{1} << 27;

struct StoredImage {
  ImageEncoding encoding = ImageEncoding::raw;
  std::span<const uint8_t> bytes;
  ImageSize size;  // of raw pixels; encoded images contain their size
};

// Returns the encoding and the size of an image (channels: as stored, 1 or 3).
StoredImage probe_image(std::span<const uint8_t> file);

// Decodes into the frame with `channels`, 1 or 3. A JPEG may be decoded at a fraction of its size,
// at least `needed_scale` (see Frame::reduced). Raw pixels are used in place and must have this
// number of channels.
void decode_image(const StoredImage& image, int64_t channels, double needed_scale,
                  WorkingImage<uint8_t>& frame);

}  // namespace dltrain

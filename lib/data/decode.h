// JPEG and PNG (told by their content) as 8-bit images.
//
// Hostile files: an image's size is read from its header first and refused beyond kMaxImagePixels;
// no memory is taken for more than the header says, and nothing is written outside of it. A cut
// file is an error. Colours: gray and RGB as wanted; an alpha channel is dropped, 16 bits become 8,
// CMYK becomes RGB without a colour profile; EXIF orientation is not looked at.
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
  ImageSize size;  // of raw pixels; others say it themselves
};

// What kind of file it is, and its size (channels: as stored, 1 or 3).
StoredImage probe_image(std::span<const uint8_t> file);

// Makes the image, with `channels` (1 or 3) of them, the frame's. A JPEG may be decoded at a
// fraction of its size not below `needed_scale`; the frame knows (see Frame::reduced). Raw pixels
// are looked at where they are and must have `channels` already.
void decode_image(const StoredImage& image, int64_t channels, double needed_scale,
                  Frame<uint8_t>& frame);

}  // namespace dltrain

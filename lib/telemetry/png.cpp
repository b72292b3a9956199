#include "telemetry/png.h"

#include <zlib.h>

#include "base/error.h"

namespace dltrain {
namespace {

std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// A chunk: length, type and data, CRC-32 of type and data.
std::string chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto crc =
      ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<uint32_t>(data.size())) + body +
         big_endian(static_cast<uint32_t>(crc));
}

std::string compressed(const std::string& bytes) {
  uLongf size = ::compressBound(bytes.size());
  std::string out(size, '\0');
  const int status =
      ::compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                  reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), Z_BEST_SPEED);
  check_internal(status == Z_OK, "zlib: {}", status);
  out.resize(size);
  return out;
}

}  // namespace

std::string encode_png(int width, int height, int channels, std::span<const uint8_t> pixels) {
  const size_t row = static_cast<size_t>(width) * static_cast<size_t>(channels);
  check_internal(width > 0 && height > 0 && (channels == 1 || channels == 3) &&
                     pixels.size() == row * static_cast<size_t>(height),
                 "an image of {} × {} × {} in {} bytes", width, height, channels, pixels.size());
  std::string lines;  // each begins with the number of its filter: 0, none
  for (size_t y = 0; y < static_cast<size_t>(height); ++y) {
    lines += '\0';
    lines.append(reinterpret_cast<const char*>(pixels.data()) + y * row, row);
  }
  const std::string header = big_endian(static_cast<uint32_t>(width)) +
                             big_endian(static_cast<uint32_t>(height)) +
                             std::string{8, static_cast<char>(channels == 1 ? 0 : 2), 0, 0, 0};
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", compressed(lines)) +
         chunk("IEND", {});
}

}  // namespace dltrain

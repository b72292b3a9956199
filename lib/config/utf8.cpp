#include "config/utf8.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace dltrain {

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    size_t length = 0;
    uint32_t smallest = 0;
    if (lead >= 0xC2 && lead < 0xE0) {
      length = 2;
      smallest = 0x80;
    } else if (lead >= 0xE0 && lead < 0xF0) {
      length = 3;
      smallest = 0x800;
    } else if (lead >= 0xF0 && lead < 0xF5) {
      length = 4;
      smallest = 0x10000;
    } else {
      return at;
    }
    if (at + length > text.size()) return at;
    uint32_t code = lead & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; ++i) {
      const auto next = static_cast<unsigned char>(text[at + i]);
      if ((next & 0xC0) != 0x80) return at;
      code = (code << 6) | (next & 0x3Fu);
    }
    if (code < smallest || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return at;
    at += length;
  }
  return {};
}

bool looks_like_utf16(std::string_view bytes) {
  if (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF")) return true;
  const size_t seen = std::min<size_t>(bytes.size(), 64) / 2 * 2;
  std::array<size_t, 2> zeros{};
  for (size_t i = 0; i < seen; ++i) zeros[i % 2] += bytes[i] == 0;
  return seen >= 4 && (zeros[0] == 0) != (zeros[1] == 0) && zeros[0] + zeros[1] >= seen / 4;
}

}  // namespace dltrain

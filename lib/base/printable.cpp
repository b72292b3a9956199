#include "base/printable.h"

#include <algorithm>

#include <fmt/format.h>

namespace dltrain {
namespace {

// Bytes of the character that `text` begins with; 0: it is no UTF-8.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>(i < text.size() ? text[i] : 0);
  };
  const unsigned first = byte(0), second = byte(1);
  const size_t bytes = first < 0x80                    ? 1
                       : first >= 0xC2 && first < 0xE0 ? 2
                       : first >= 0xE0 && first < 0xF0 ? 3
                       : first >= 0xF0 && first < 0xF5 ? 4
                                                       : 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Longer than needed, half of a pair of UTF-16, or beyond U+10FFFF.
  const bool wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                     (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return wrong ? 0 : bytes;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const auto c = static_cast<unsigned char>(text[0]);
    const bool obeyed = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
    if (bytes == 0 || obeyed) {
      out += fmt::format("\\x{:02x}", c);
    } else if (c == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0) {  // U+0080 to U+009F
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[1]));
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

}  // namespace dltrain

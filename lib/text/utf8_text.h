// Characters of UTF-8 text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dltrain {

// Throws EncodeError at the first byte that does not belong to a valid character; `offset` is that
// of the text in what it is a part of.
void check_utf8(std::string_view text, size_t offset = 0);

// The character at `at` of valid UTF-8, and moves `at` behind it.
inline uint32_t next_character(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const uint32_t lead = byte(at++);
  if (lead < 0x80) return lead;
  if (lead < 0xE0) return (lead & 0x1F) << 6 | (byte(at++) & 0x3Fu);
  const int more = lead < 0xF0 ? 2 : 3;
  uint32_t code = lead & (lead < 0xF0 ? 0x0F : 0x07);
  for (int i = 0; i < more; ++i) code = code << 6 | (byte(at++) & 0x3Fu);
  return code;
}

void append_character(uint32_t code, std::string& text);

// The greatest position of [0, limit] that is the border of two characters.
inline size_t character_border(std::string_view text, size_t limit) {
  while (limit > 0 && limit < text.size() &&
         (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) {
    --limit;
  }
  return limit;
}

// A character as messages show it: "'é' (U+00E9)".
std::string shown_character(uint32_t code);

// One line that a terminal shows and obeys nothing of, whatever `bytes` has in it: line breaks and
// tabs as \n, \r and \t, other control characters (U+007F to U+009F are some) as a question mark,
// and U+FFFD for what is no UTF-8. Cut with … behind `most` characters.
std::string shown_line(std::string_view bytes, size_t most = std::string_view::npos);

// Appends `bytes` to `out` with U+FFFD for each maximal part that is no character (Unicode,
// section 3.9; as Python and Rust do). Unless `all`, an unfinished character at the end is left
// out; returns how many bytes were used.
size_t append_valid_utf8(std::string_view bytes, bool all, std::string& out);

}  // namespace dltrain

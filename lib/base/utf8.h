// UTF-8 text (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF): checks,
// characters, and forms that are safe to print on a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dltrain {

// Returns the offset of the first byte that does not belong to a valid character, or nothing if the
// text is valid.
std::optional<size_t> find_invalid_utf8(std::string_view text);

// Returns true if the bytes look like UTF-16, which Windows programs write: they have a byte order
// mark, or every second byte is zero.
bool looks_like_utf16(std::string_view bytes);

// Decodes the character at offset `at` of valid UTF-8 and advances `at` past it.
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

// Returns the text with the letters A to Z in lower case.
inline std::string lower_ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// Returns the number of characters of valid UTF-8.
inline size_t character_count(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

// Appends the encoding of a code point.
void append_character(uint32_t code, std::string& text);

// Returns the greatest character boundary in [0, limit].
inline size_t character_border(std::string_view text, size_t limit) {
  while (limit > 0 && limit < text.size() &&
         (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) {
    --limit;
  }
  return limit;
}

// Appends `bytes` to `out` and replaces each maximal invalid part by U+FFFD (Unicode, section 3.9;
// as Python and Rust do). Unless `all` is set, an incomplete character at the end is not consumed.
// Returns the number of bytes consumed.
size_t append_valid_utf8(std::string_view bytes, bool all, std::string& out);

// Escapes control characters, which a terminal would execute, and invalid bytes ("\x1b",
// "\u009b"). Line breaks and tabs are kept.
std::string printable(std::string_view text);

// Formats one character for a message: "'é' (U+00E9)".
std::string shown_character(uint32_t code);

// Formats `bytes` as one line for a message: line breaks and tabs as \n, \r and \t, other control
// characters as a question mark, invalid bytes as U+FFFD. Text of more than `most` characters is
// cut and ends in "…".
std::string shown_line(std::string_view bytes, size_t most = std::string_view::npos);

}  // namespace dltrain

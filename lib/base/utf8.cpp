#include "base/utf8.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace dltrain {
namespace {

// The first `bytes` of a text: one character (valid), the beginning of one that needs more bytes
// (incomplete), or an invalid sequence.
struct Utf8Sequence {
  size_t bytes;
  bool valid, incomplete;
};

Utf8Sequence first_sequence(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The range of the second byte excludes overlong forms, surrogates and values above U+10FFFF.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, false, true};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) {
      return {i, false, false};
    }
  }
  return {length, true, false};
}

bool is_control(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0);
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Sequence sequence = first_sequence(text.substr(at));
    if (!sequence.valid) return at;
    at += sequence.bytes;
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

void append_character(uint32_t code, std::string& text) {
  const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      add(0xE0 | code >> 12);
    } else {
      add(0xF0 | code >> 18);
      add(0x80 | (code >> 12 & 0x3F));
    }
    add(0x80 | (code >> 6 & 0x3F));
  }
  add(0x80 | (code & 0x3F));
}

size_t append_valid_utf8(std::string_view bytes, bool all, std::string& out) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Sequence sequence = first_sequence(bytes.substr(at));
    if (sequence.incomplete && !all) break;
    out += sequence.valid ? bytes.substr(at, sequence.bytes) : "\xEF\xBF\xBD";
    at += sequence.bytes;
  }
  return at;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Sequence sequence = first_sequence(text);
    size_t at = 0;
    const uint32_t code = sequence.valid ? next_character(text, at) : 0;
    if (!sequence.valid || (code < 0x80 && is_control(code) && code != '\n' && code != '\t')) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
      at = 1;
    } else if (code >= 0x80 && is_control(code)) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out += text.substr(0, at);
    }
    text.remove_prefix(at);
  }
  return out;
}

std::string shown_character(uint32_t code) {
  if (is_control(code)) return fmt::format("U+{:04X}", code);
  std::string text;
  append_character(code, text);
  return fmt::format("'{}' (U+{:04X})", text, code);
}

std::string shown_line(std::string_view bytes, size_t most) {
  std::string valid, out;
  append_valid_utf8(bytes, /*all=*/true, valid);
  for (size_t at = 0, count = 0; at < valid.size(); ++count) {
    if (count == most) return out + "…";
    const uint32_t code = next_character(valid, at);
    constexpr std::string_view kEscaped = "\n\r\t", kLetters = "nrt";
    if (const size_t i = kEscaped.find(static_cast<char>(code)); code < 0x80 && i < 3) {
      out += {'\\', kLetters[i]};
    } else {
      append_character(is_control(code) ? '?' : code, out);
    }
  }
  return out;
}

}  // namespace dltrain

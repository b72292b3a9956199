#include "text/utf8_text.h"

#include "config/utf8.h"
#include "text/tokenizer.h"

namespace dltrain {
namespace {

// How a sequence of bytes begins: `bytes` of them, which are a character (valid), could become one
// if more came (unfinished), or neither.
struct Lead {
  size_t bytes;
  bool valid, unfinished;
};

Lead examine(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte alone tells overlong forms, surrogates and what lies above U+10FFFF.
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

}  // namespace

void check_utf8(std::string_view text, size_t offset) {
  if (const auto bad = find_invalid_utf8(text)) {
    throw EncodeError(fmt::format("is no UTF-8: the byte 0x{:02x} does not belong to a character",
                                  static_cast<unsigned char>(text[*bad])),
                      offset + *bad);
  }
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

namespace {

// What a terminal may obey.
bool is_control_utf8_text(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0);
}

}  // namespace

std::string shown_character(uint32_t code) {
  if (is_control_utf8_text(code)) return fmt::format("U+{:04X}", code);
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
    if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else {
      append_character(is_control_utf8_text(code) ? '?' : code, out);
    }
  }
  return out;
}

size_t append_valid_utf8(std::string_view bytes, bool all, std::string& out) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Lead lead = examine(bytes.substr(at));
    if (lead.unfinished && !all) break;
    out += lead.valid ? bytes.substr(at, lead.bytes) : "\xEF\xBF\xBD";
    at += lead.bytes;
  }
  return at;
}

}  // namespace dltrain

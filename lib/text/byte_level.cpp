#include "text/byte_level.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace dltrain {
namespace {

// Printable bytes map to themselves, the others to U+0100 and following.
constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet256 {
  std::array<uint16_t, 256> character{};
  std::array<int16_t, 512> byte{};  // by character; -1: none
};

constexpr Alphabet256 make_alphabet() {
  Alphabet256 out;
  for (auto& byte : out.byte) byte = -1;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = stands_for_itself(byte) ? byte : next++;
    out.character[static_cast<size_t>(byte)] = static_cast<uint16_t>(character);
    out.byte[static_cast<size_t>(character)] = static_cast<int16_t>(byte);
  }
  return out;
}

constexpr Alphabet256 kAlphabet = make_alphabet();

}  // namespace

std::optional<std::string> bytes_from_alphabet(std::string_view written) {
  std::string out;
  for (size_t at = 0; at < written.size();) {
    const uint32_t code = next_character(written, at);
    const int byte = code < kAlphabet.byte.size() ? kAlphabet.byte[code] : -1;
    if (byte < 0) return {};
    out += static_cast<char>(byte);
  }
  return out;
}

std::string written_in_alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    append_character(kAlphabet.character[static_cast<unsigned char>(c)], out);
  }
  return out;
}

}  // namespace dltrain

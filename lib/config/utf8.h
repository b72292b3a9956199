// Validity of UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace dltrain {

// Returns the offset of the first byte that is not part of a valid character, or nothing.
std::optional<size_t> find_invalid_utf8(std::string_view text);

// Returns whether the bytes look like UTF-16, which Windows programs save: by the byte order mark,
// or because every second byte is zero.
bool looks_like_utf16(std::string_view bytes);

}  // namespace dltrain

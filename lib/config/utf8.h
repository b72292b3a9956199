// Validity of UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace dltrain {

// Byte offset of the first byte that does not belong to a valid character; empty where all are
// valid.
std::optional<size_t> find_invalid_utf8(std::string_view text);

// Whether the bytes look like UTF-16, which Windows programs save: by the byte order mark, or by
// every second byte being zero.
bool looks_like_utf16(std::string_view bytes);

}  // namespace dltrain

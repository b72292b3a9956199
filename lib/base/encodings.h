// Texts as other programs read them.
#pragma once

#include <string>
#include <string_view>

namespace dltrain {

// Base64 with padding (RFC 4648, section 4).
std::string base64(std::string_view bytes);

// A word as a POSIX shell reads it: quoted unless it is plain.
std::string quoted_for_shell(std::string_view word);

// A field of a CSV line, quoted where it must be (RFC 4180).
std::string csv_field(std::string_view text);

}  // namespace dltrain

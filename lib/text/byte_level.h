// The alphabet of byte-level vocabularies: each of the 256 bytes is written as one printable
// character (GPT-2, encoder.py, bytes_to_unicode), so that vocab.json and merges.txt are text.
// " the" is written "Ġthe".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dltrain {

// Returns the bytes of a token as written in vocabularies, or nothing if a character is not in the
// alphabet. `written` is valid UTF-8.
std::optional<std::string> bytes_from_alphabet(std::string_view written);
std::string written_in_alphabet(std::string_view bytes);

}  // namespace dltrain

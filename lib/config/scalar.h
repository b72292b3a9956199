// The type of a YAML scalar by the core schema of YAML 1.2, without the ambiguities of YAML 1.1.
//
// true/false are booleans, `yes` and `on` are text; 0x10 and 0o17 are integers; a number with a
// leading zero (012: ten in YAML 1.1, twelve in 1.2) is text; quoted scalars are always text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/tree.h"

namespace dltrain {

// ASCII characters of names: letters and '_', and digits.
inline bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
inline bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

enum class ScalarType { null, boolean, integer, number, text };

// The type of a plain (unquoted) scalar.
ScalarType classify_plain(std::string_view text);
// The type of a scalar node, which may be quoted.
ScalarType classify(const ConfigNode& node);

// Return nothing if the scalar is not of that type or does not fit 64 bits.
std::optional<bool> as_boolean(const ConfigNode& node);
std::optional<int64_t> as_integer(const ConfigNode& node);
// Accepts integers, infinity and NaN (.inf, -.inf, .nan); an overflow returns infinity.
std::optional<double> as_number(const ConfigNode& node);

// Suggests how to write a scalar that is probably a boolean or number: "; write true" for yes, ";
// write 12 …" for 012, "; remove the quotes" for "3"; or returns an empty text.
std::string scalar_hint(const ConfigNode& node, ScalarType wanted);

// Returns the shortest text that reads back as this number; integers above 1e15 have an exponent.
std::string number_text(double value);
// Returns a YAML scalar that reads back as this text: plain if that is safe, otherwise quoted.
std::string quoted_when_needed(std::string_view text);
// Returns a node as YAML on one line. Plain scalars stay as they are written.
std::string flow_text(const ConfigNode& node);

}  // namespace dltrain

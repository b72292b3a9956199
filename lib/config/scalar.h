// What a YAML scalar is: the core schema of YAML 1.2, with the traps of YAML 1.1 left out.
//
// true/false are booleans, `yes` and `on` are text; 0x10 and 0o17 are integers, a leading zero
// (012: ten in YAML 1.1, twelve in 1.2) is nothing at all; quoted scalars are always text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/tree.h"

namespace dltrain {

enum class ScalarType { null, boolean, integer, number, text };

// Of a plain (unquoted) scalar.
ScalarType classify_plain(std::string_view text);
// Of a scalar node, its quotes considered.
ScalarType classify(const ConfigNode& node);

// Empty where the scalar is not of that type, or does not fit 64 bits.
std::optional<bool> as_boolean(const ConfigNode& node);
std::optional<int64_t> as_integer(const ConfigNode& node);
// Integers count as numbers. Infinity and NaN (.inf, -.inf, .nan) and overflow come back as such.
std::optional<double> as_number(const ConfigNode& node);

// Why a scalar that a person meant as a boolean or number is none, with what to write instead:
// "; write true" for yes, "; write 12 …" for 012, "; remove the quotes" for "3". Often empty.
std::string scalar_hint(const ConfigNode& node, ScalarType wanted);

// The shortest text that reads back as exactly this number; integers above 1e15 in exponent form.
std::string number_text(double value);
// `text` as a YAML scalar that reads back as this very text: plain where that is safe, else quoted.
std::string quoted_when_needed(std::string_view text);

}  // namespace dltrain

// The resolved configuration: every key with its value, defaults included, as YAML. Reading it back
// gives the same values: numbers in the shortest form that is exact, texts quoted where they need
// it, references to the environment already expanded (a text that holds `${` comes out as `$${`).
// Paths (Key::is_path) come out absolute, so that the configuration means the same from any folder.
#pragma once

#include <string>

#include "config/fields.h"

namespace dltrain {

std::string dump_config(ObjectRef object);

template <typename T>
std::string dump_config(const T& object) {
  // describe() is not const because the parser needs it so; dumping only reads.
  return dump_config(ObjectRef::of(const_cast<T&>(object)));
}

// One value as YAML on one line: `null`, `auto`, `[1, 2]`, `"a b"`.
std::string value_text(const Value& value);

}  // namespace dltrain

// The resolved configuration: every key with its value, including defaults, as YAML. Reading it
// gives the same values: numbers have the shortest exact form, texts are quoted if needed,
// references to the environment are expanded (`${` in a text becomes `$${`). Paths (Key::is_path)
// are absolute, so that the configuration can be used from any folder.
#pragma once

#include <string>

#include "config/fields.h"

namespace dltrain {

std::string dump_config(ObjectRef object);

template <typename T>
std::string dump_config(const T& object) {
  // describe() is not const because the parser writes through it; dumping only reads.
  return dump_config(ObjectRef::of(const_cast<T&>(object)));
}

// One value as YAML on one line: `null`, `auto`, `[1, 2]`, `"a b"`.
std::string value_text(const Value& value);

}  // namespace dltrain

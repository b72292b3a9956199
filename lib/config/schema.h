// The JSON Schema (draft 2020-12) of a configuration file, for editors that complete and check
// YAML.
//
// It accepts every file that the parser accepts, and rejects unknown keys, wrong types and values
// out of range. It does not check cross-field rules or required keys, which `extends` or an
// override may give.
#pragma once

#include <string>

#include "config/fields.h"

namespace dltrain {

// Pretty-printed, with a trailing newline. `object` is a default object and may be changed.
std::string config_schema(ObjectRef object, const std::string& title);

template <typename T>
std::string config_schema(const std::string& title) {
  T object;
  return config_schema(ObjectRef::of(object), title);
}

}  // namespace dltrain

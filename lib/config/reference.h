// The reference of all keys as Markdown (docs/config.md), generated from the same describe()
// functions that the parser uses.
#pragma once

#include <string>
#include <vector>

#include "config/fields.h"

namespace dltrain {

// Returns one chapter for the top level and each section and one for each family of kinds, with
// tables of key, type, default, limits and meaning. `object` is a default object and may be
// changed.
std::string config_reference(ObjectRef object);

// The rows of one object as plain text.
struct KeyRow {
  std::string name, type, initial, limits, doc;
};
std::vector<KeyRow> key_rows(ObjectRef object);

template <typename T>
std::string config_reference() {
  T object;
  return config_reference(ObjectRef::of(object));
}

}  // namespace dltrain

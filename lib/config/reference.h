// The reference of all keys as Markdown (docs/config.md), written from the same describe()
// functions that the parser uses, so it cannot say anything else than what the program does.
#pragma once

#include <string>
#include <vector>

#include "config/fields.h"

namespace dltrain {

// One chapter for the top level and each section, one for each family of kinds, tables of key,
// type, default, limits and meaning. `object` is a default object and may be changed.
std::string config_reference(ObjectRef object);

// The same of one object alone, as plain text.
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

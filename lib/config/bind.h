// Binding: reads a ConfigNode tree into described structs (fields.h), strictly, at every depth, and
// reports every mistake that it finds.
#pragma once

#include "config/fields.h"
#include "config/problems.h"
#include "config/tree.h"

namespace dltrain {

// Reads `root` into `object`, whose members hold their defaults. Mistakes are added to `problems`;
// the object is then unusable. Structs are validated (their validate()) when their own keys and all
// below them are right.
void bind(ObjectRef object, const ConfigNode& root, Problems& problems);

template <typename T>
void bind(T& object, const ConfigNode& root, Problems& problems) {
  bind(ObjectRef::of(object), root, problems);
}

}  // namespace dltrain

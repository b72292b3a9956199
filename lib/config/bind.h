// Binding: reads a ConfigNode tree into described structs (fields.h) and reports all problems, such
// as unknown keys, at every depth.
#pragma once

#include "config/fields.h"
#include "config/problems.h"
#include "config/tree.h"

namespace dltrain {

// Reads `root` into `object`, whose members have their defaults, and calls validate(). If there are
// problems, the object must not be used.
void bind(ObjectRef object, const ConfigNode& root, Problems& problems);

template <typename T>
void bind(T& object, const ConfigNode& root, Problems& problems) {
  bind(ObjectRef::of(object), root, problems);
}

}  // namespace dltrain

// Binding: reads a ConfigNode tree into described structs (fields.h) and reports all problems, such
// as unknown keys, at every depth.
#pragma once

#include "config/diagnostics.h"
#include "config/fields.h"
#include "config/tree.h"

namespace dltrain {

// Reads `root` into `object`, whose members have their defaults, and calls validate(). If there are
// problems, the object must not be used.
void bind(ObjectRef object, const ConfigNode& root, Diagnostics& diagnostics);

template <typename T>
void bind(T& object, const ConfigNode& root, Diagnostics& diagnostics) {
  bind(ObjectRef::of(object), root, diagnostics);
}

}  // namespace dltrain

// What can be wrong between the parts of a map (Fields::parts()) and the keys common to them.
#pragma once

#include <string>

#include "config/problems.h"
#include "config/slots.h"
#include "config/tree.h"

namespace dltrain {

// `map` holds the parts, `common` its keys that belong to none, `path` is where it stands ("data").

// A common key that every part has for itself would be ignored. Refused where it comes from -s or
// from the text that gives the parts; in files that build on one another it is how parts are
// changed.
void refuse_hidden_keys(const PartsSlot& parts, const ConfigNode& map, const ConfigNode& common,
                        const std::string& path, Problems& problems);

// Part number `index`, with the common keys in `node`, names no kind though the first part does:
// true, and reported.
bool refuse_borrowed_kind(const PartsSlot& parts, size_t index, const ConfigNode& map,
                          const ConfigNode& node, const std::string& path, Problems& problems);

}  // namespace dltrain

// `-s KEY=VALUE`: KEY is a path such as `model.layers[2].dropout`, VALUE is YAML.
//
// All overrides act as one more document on top of the files. Those that choose a `type` are
// applied first. The other keys of that map are kept if the new type has them too; otherwise they
// are dropped with a warning. What a flag sets is written "--device device=cpu", and its problems
// are at "--device cpu".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"
#include "config/tree.h"

namespace dltrain {

struct Override {
  struct Step {
    std::string key;  // empty: an index
    size_t index = 0;
    SourceLocation location;
  };
  std::vector<Step> path;
  ConfigNode value;
};

// Returns the valid overrides in order; the others are problems at "-s TEXT".
std::vector<Override> parse_overrides(const std::vector<std::string>& texts,
                                      Diagnostics& diagnostics);

// Sets the values in `tree`. Missing maps on the path are created; a kind in its short form
// (`relu`) becomes {type: relu}; an index must exist.
void apply_overrides(ConfigNode& tree, std::vector<Override> overrides, Diagnostics& diagnostics);

// Warns of keys of `path` that were dropped because -s chose `type` instead of `old`.
void warn_of_dropped_keys(const std::string& path, const std::string& old, std::string_view type,
                          const std::vector<std::string>& keys, Diagnostics& diagnostics);

}  // namespace dltrain

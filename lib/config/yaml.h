// Reads one YAML document into a ConfigNode tree. The text is not trusted: size, depth and node
// count (with expanded aliases) are limited, and the text must be UTF-8.
//
// Accepted: YAML 1.2 block and flow style, anchors and aliases, `<<` merge keys. Rejected, each
// with its place: syntax errors, duplicate keys (with both places), keys that are not scalars,
// tags, several documents in one file, tabs as indentation, control characters.
#pragma once

#include <memory>
#include <optional>

#include "config/diagnostics.h"
#include "config/tree.h"

namespace dltrain {

struct YamlLimits {
  // These two leave room for the resolved configuration of a run, where blocks are expanded.
  static constexpr size_t kBytes = size_t{64} << 20;  // of one file
  static constexpr size_t kNodes = 2'000'000;         // of one document, aliases expanded
  static constexpr size_t kKeys = 10'000;             // of one map
  static constexpr size_t kDepth = 100;               // of nested maps and lists
};

// Reads the text from byte `begin` on. An empty document is a null node. Returns nothing if there
// are problems.
std::optional<ConfigNode> read_yaml(std::shared_ptr<const Source> source, size_t begin,
                                    Diagnostics& diagnostics);

}  // namespace dltrain

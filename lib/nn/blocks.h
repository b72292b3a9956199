// Blocks: parts of a model that are written once and used with arguments.
//
//   model:
//     blocks:
//       unit:
//         parameters: {channels: , stride: 1, activation: relu}     # without a value: required
//         layers:
//           - {conv2d: {out_channels: 2 * $channels, kernel_size: 3, stride: $stride}}
//           - $activation
//     layers:
//       - {block: unit, channels: 16}
//       - {block: unit, channels: 32, stride: 2, name: second}
//
// A use becomes a `sequential` of the block's layers. In them a value `$name` is replaced by the
// argument (a number, a list, a layer), and a product such as `2 * $channels` or `$width / $heads`,
// which must have no remainder, by an integer. No other expressions are supported. Blocks may use
// other blocks, but not themselves.
//
// A parameter has its default as value, or a map of `default`, `choices` and `doc`. A default may
// refer to earlier parameters: `inner: 4 * $width`.
//
// Blocks are expanded in the tree, before layers are read. A problem with an argument is reported
// at the argument; a problem in the block is reported there, with a note about its use.
#pragma once

#include <string>
#include <vector>

#include "config/diagnostics.h"
#include "config/tree.h"
#include "nn/block_definition.h"

namespace dltrain {

class BlockExpander {
 public:
  // `common`: keys that every layer has, which a use passes on to its layer.
  BlockExpander(std::vector<std::string> common, Diagnostics& diagnostics)
      : common_(std::move(common)), diagnostics_(diagnostics) {}

  // Reads the `blocks` section.
  void define(const ConfigNode& blocks);
  // Returns the layers with all uses of blocks expanded.
  ConfigNode expand(const ConfigNode& layers);
  // Returns the layers of a definition used with `arguments` at `location`. `what` names it in
  // messages: "model (type lenet)"; `prefix` is put before the names of arguments: "model.".
  ConfigNode instantiate(const BlockDefinition& definition, const ConfigNode& arguments,
                         const SourceLocation& location, const std::string& what,
                         const std::string& prefix);

 private:
  struct Scope;
  ConfigNode copy(const ConfigNode& node, const Scope& scope);
  ConfigNode substitute(const ConfigNode& node, const Scope& scope);
  ConfigNode use(const ConfigNode& node);
  const BlockDefinition* find(const ConfigNode& name);

  std::vector<std::string> common_;
  Diagnostics& diagnostics_;
  std::vector<BlockDefinition> blocks_;
  std::vector<const BlockDefinition*> chain_;  // being expanded, the outermost first
  size_t nodes_ = 0;
};

}  // namespace dltrain

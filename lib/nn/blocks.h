// Blocks: parts of a model that are written once and used with arguments.
//
//   model:
//     blocks:
//       unit:
//         parameters: {channels: , stride: 1, activation: relu}     # nothing behind it: required
//         layers:
//           - {conv2d: {out_channels: 2 * $channels, kernel_size: 3, stride: $stride}}
//           - $activation
//     layers:
//       - {block: unit, channels: 16}
//       - {block: unit, channels: 32, stride: 2, name: second}
//
// A use becomes a `sequential` of the block's layers. In them a value `$name` stands for the
// argument, whatever that is (a number, a list, a layer), and a product such as `2 * $channels` or
// `$width / $heads`, which must have no remainder, for an integer. Nothing else is computed. Blocks
// may use blocks, but not themselves.
//
// A parameter is its default, or a map of `default`, `choices` and `doc`. A default may refer to
// the parameters before it: `inner: 4 * $width`.
//
// This works on the tree, before layers are read: a mistake in an argument is reported where the
// argument stands, one in the block at the block with a note where it is used.
#pragma once

#include <string>
#include <vector>

#include "config/problems.h"
#include "config/tree.h"
#include "nn/block_definition.h"

namespace dltrain {

class BlockExpander {
 public:
  // `common`: keys that every layer has, which a use passes on to its layer.
  BlockExpander(std::vector<std::string> common, Problems& problems)
      : common_(std::move(common)), problems_(problems) {}

  // Reads the `blocks` section.
  void define(const ConfigNode& blocks);
  // The layers with every use of a block replaced. What cannot be is reported.
  ConfigNode expand(const ConfigNode& layers);
  // The layers of a definition used with `arguments` at `place`; `what` names it in messages:
  // "model (type lenet)", and `prefix` what stands before the name of an argument: "model.".
  ConfigNode instantiate(const BlockDefinition& definition, const ConfigNode& arguments,
                         const Place& place, const std::string& what, const std::string& prefix);

 private:
  struct Scope;
  ConfigNode copy(const ConfigNode& node, const Scope& scope);
  ConfigNode substitute(const ConfigNode& node, const Scope& scope);
  ConfigNode use(const ConfigNode& node, const Scope& scope);
  const BlockDefinition* find(const ConfigNode& name);

  std::vector<std::string> common_;
  Problems& problems_;
  std::vector<BlockDefinition> blocks_;
  std::vector<const BlockDefinition*> chain_;  // being expanded, the outermost first
  size_t nodes_ = 0;
};

}  // namespace dltrain

#include "nn/model_files.h"

#include "base/error.h"
#include "config/yaml.h"

namespace dltrain {
namespace {

// Returns the tree of a file merged into that of the file that it extends. Without `description`
// and `blocks` it is the definition of a block.
std::optional<ConfigNode> read_tree(const EmbeddedFile& file, Diagnostics& diagnostics) {
  const auto source = std::make_shared<Source>(
      Source{fmt::format("{}.yaml (built in)", file.name), std::string(file.text), false, true});
  auto tree = read_yaml(source, 0, diagnostics);
  if (!tree || !tree->is_map()) return {};
  const ConfigNode* extends = tree->find("extends");
  if (!extends) return tree;
  for (const EmbeddedFile& other : model_files()) {
    if (other.name != extends->text || other.name == file.name) continue;
    auto base = read_tree(other, diagnostics);
    if (!base) return {};
    tree->erase("extends");
    merge_into(*base, *std::move(tree));
    return base;
  }
  diagnostics.add(extends->location, "no such architecture");
  return {};
}

// Removes a key and returns its value, which is null if there is none.
ConfigNode take(ConfigNode& map, std::string_view key) {
  const ConfigNode* found = map.find(key);
  ConfigNode value = found != nullptr ? *found : ConfigNode();
  map.erase(key);
  return value;
}

}  // namespace

ModelSummary summarize(const EmbeddedFile& file) {
  Diagnostics diagnostics;
  auto tree = read_tree(file, diagnostics);
  diagnostics.throw_if_any();
  check_internal(tree.has_value(), "{} is not a map", file.name);
  const std::string description = take(*tree, "description").text;
  tree->erase("blocks");
  return {description, read_block({std::string(file.name), {}}, *tree, {}, diagnostics).parameters};
}

ConfigNode instantiate_model(const EmbeddedFile& file, const ConfigNode& arguments,
                             const ConfigNode& type, const std::vector<std::string>& common,
                             const std::vector<std::string>& reserved, Diagnostics& diagnostics) {
  auto tree = read_tree(file, diagnostics);
  if (!tree) return {};
  BlockExpander expander(common, diagnostics);
  expander.define(take(*tree, "blocks"));
  tree->erase("description");
  const BlockDefinition definition =
      read_block({std::string(file.name), type.location}, *tree, reserved, diagnostics);
  return expander.instantiate(definition, arguments, type.location,
                              fmt::format("model (type {})", file.name), "model.");
}

}  // namespace dltrain

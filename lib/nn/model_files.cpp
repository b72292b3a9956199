#include "nn/model_files.h"

#include "base/error.h"
#include "config/yaml.h"

namespace dltrain {
namespace {

// A model file: `rest` is the definition of a block, without the other keys.
struct Parsed {
  std::string description;
  ConfigNode blocks;
  ConfigNode rest;
};

// Returns the tree of a file merged into that of the file that it extends.
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

std::optional<Parsed> parse(const EmbeddedFile& file, Diagnostics& diagnostics) {
  auto tree = read_tree(file, diagnostics);
  if (!tree) return {};
  Parsed out;
  if (const ConfigNode* doc = tree->find("description")) out.description = doc->text;
  if (const ConfigNode* blocks = tree->find("blocks")) out.blocks = *blocks;
  tree->erase("description");
  tree->erase("blocks");
  out.rest = *std::move(tree);
  return out;
}

}  // namespace

ModelSummary summarize(const EmbeddedFile& file) {
  Diagnostics diagnostics;
  const auto parsed = parse(file, diagnostics);
  diagnostics.throw_if_any();
  check_internal(parsed.has_value(), "{} is not a map", file.name);
  return {parsed->description,
          read_block({std::string(file.name), {}}, parsed->rest, {}, diagnostics).parameters};
}

ConfigNode instantiate_model(const EmbeddedFile& file, const ConfigNode& arguments,
                             const ConfigNode& type, const std::vector<std::string>& common,
                             const std::vector<std::string>& reserved, Diagnostics& diagnostics) {
  const auto parsed = parse(file, diagnostics);
  if (!parsed) return {};
  BlockExpander expander(common, diagnostics);
  expander.define(parsed->blocks);
  const BlockDefinition definition =
      read_block({std::string(file.name), type.location}, parsed->rest, reserved, diagnostics);
  return expander.instantiate(definition, arguments, type.location,
                              fmt::format("model (type {})", file.name), "model.");
}

}  // namespace dltrain

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
std::optional<ConfigNode> read_tree(const ModelFile& file, Problems& problems) {
  const auto source = std::make_shared<Source>(
      Source{fmt::format("{}.yaml (built in)", file.name), std::string(file.text), false, true});
  auto tree = read_yaml(source, 0, problems);
  if (!tree || !tree->is_map()) return {};
  const ConfigNode* extends = tree->find("extends");
  if (!extends) return tree;
  for (const ModelFile& other : model_files()) {
    if (other.name != extends->text || other.name == file.name) continue;
    auto base = read_tree(other, problems);
    if (!base) return {};
    tree->erase("extends");
    merge_into(*base, *std::move(tree));
    return base;
  }
  problems.add(extends->place, "no such architecture");
  return {};
}

std::optional<Parsed> parse(const ModelFile& file, Problems& problems) {
  auto tree = read_tree(file, problems);
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

ModelSummary summarize(const ModelFile& file) {
  Problems problems;
  const auto parsed = parse(file, problems);
  problems.throw_if_any();
  check_internal(parsed.has_value(), "{} is not a map", file.name);
  return {parsed->description,
          read_block({std::string(file.name), {}}, parsed->rest, {}, problems).parameters};
}

ConfigNode instantiate_model(const ModelFile& file, const ConfigNode& arguments,
                             const ConfigNode& type, const std::vector<std::string>& common,
                             const std::vector<std::string>& reserved, Problems& problems) {
  const auto parsed = parse(file, problems);
  if (!parsed) return {};
  BlockExpander expander(common, problems);
  expander.define(parsed->blocks);
  const BlockDefinition definition =
      read_block({std::string(file.name), type.place}, parsed->rest, reserved, problems);
  return expander.instantiate(definition, arguments, type.place,
                              fmt::format("model (type {})", file.name), "model.");
}

}  // namespace dltrain

// Named architectures: the files of configs/models, which are built into the program so that a
// configuration with `model: {type: resnet18}` needs no other file. Each is the definition of a
// block (nn/blocks.h) with blocks of its own:
//
//   extends: resnet18                       another of these files, which this one changes
//   description: one line
//   parameters: {num_classes: 1000}
//   blocks: …
//   layers: …
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/embedded_file.h"
#include "config/diagnostics.h"
#include "config/tree.h"
#include "nn/blocks.h"

namespace dltrain {

std::span<const EmbeddedFile> model_files();  // by name

// Returns the description of a model file for lists.
struct ModelSummary {
  std::string description;
  std::vector<BlockDefinition::Parameter> parameters;
};
ModelSummary summarize(const EmbeddedFile& file);

// Returns the layers of a model file with these arguments (the keys beside `type`). `common`: keys
// that every layer has; `reserved`: keys of the model section. Problems are reported at the
// argument, at `type`, or in the file.
ConfigNode instantiate_model(const EmbeddedFile& file, const ConfigNode& arguments,
                             const ConfigNode& type, const std::vector<std::string>& common,
                             const std::vector<std::string>& reserved, Diagnostics& diagnostics);

}  // namespace dltrain

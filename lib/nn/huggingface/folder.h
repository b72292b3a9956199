// Folders of Hugging Face's models: config.json beside the weights (tensor/safetensors_set.h) and
// the files of the tokenizer.
#pragma once

#include <filesystem>
#include <string>

#include "config/diagnostics.h"
#include "config/tree.h"
#include "nn/huggingface/families.h"

namespace dltrain {

// Reads a JSON file; null where there is none or it is no JSON object.
nlohmann::json read_json_file(const std::filesystem::path& path);
// Reads config.json of a folder likewise.
nlohmann::json read_config_json(const std::filesystem::path& folder);

// Returns the family of a folder, or of the folder of a file, by its config.json; null if there is
// none or it is unknown.
const HuggingFaceFamily* huggingface_family_of(const std::filesystem::path& weights);

// Returns the names of a classifier's classes in a folder's config.json; empty if there are none.
std::vector<std::string> class_names_of(const std::filesystem::path& folder);

// The result of reading a config.json, with its errors as sentences.
struct HuggingFaceConfig {
  HuggingFaceModel model;
  std::vector<std::string> errors;
};
// Reads the text of a config.json. `location`: the file, in messages; `type`: the architecture of
// the configuration, "" for that of the file; `at`: the place of the arguments. Throws Error(usage)
// for text that is not a JSON object.
HuggingFaceConfig read_huggingface_config(const std::string& location, const std::string& text,
                                          const std::string& type, const SourceLocation& at);

// Replaces {from: FOLDER, …} of a model section by {type: …, …, init_from: FOLDER} with the keys of
// the folder's config.json, unless the section has them. A relative folder is resolved as in
// config/paths.h. Returns false if there are problems.
bool rewrite_huggingface_model(ConfigNode& map, Diagnostics& diagnostics);

}  // namespace dltrain

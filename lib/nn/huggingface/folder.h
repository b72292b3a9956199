// Folders of Hugging Face's models: config.json beside the weights (tensor/safetensors_set.h) and
// the files of the tokenizer.
#pragma once

#include <filesystem>
#include <string>

#include "config/problems.h"
#include "config/tree.h"
#include "nn/huggingface/families.h"

namespace dltrain {

// The family of a folder or of the folder of a file, by its config.json; null where there is none,
// or none that is known. For names of tensors.
const HuggingFaceFamily* huggingface_family_of(const std::filesystem::path& weights);

// Reads the text of a config.json. What is wrong is in `mistakes`, one sentence each.
struct HuggingFaceReading {
  HuggingFaceModel model;
  std::vector<std::string> mistakes;
};
// `place`: the file, in messages; `type`: an architecture that the person chose, "" for that of the
// file; `at`: where the arguments say they stand. Throws Error(usage) for text that is no JSON
// object.
HuggingFaceReading read_huggingface_config(const std::string& place, const std::string& text,
                                           const std::string& type, const Place& at);

// {from: FOLDER, …} of a model section becomes {type: …, …, init_from: FOLDER}: the keys that the
// folder's config.json means, below those that the person gave. A relative folder lies beside the
// file of the configuration, or else where the program was started. False: there were problems.
bool rewrite_huggingface_model(ConfigNode& map, Problems& problems);

}  // namespace dltrain

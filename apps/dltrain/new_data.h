// Data that is given beside a trained model (`dltrain predict RUN new.csv`), and models that have
// no configuration of their own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/run_folder.h"
#include "config/tree.h"

namespace dltrain {

struct NewData {
  std::filesystem::path path;        // file, folder, or pattern of files of text
  std::filesystem::path tokenizer;   // folder of the model's; empty: none is there
  std::vector<std::string> classes;  // of the model
  bool targets = true;               // the data must have them
};

// Makes data.train of a run's configuration that data, read as evaluation reads its own; nothing
// else is read. Keys of `data` that were set on the command line lie on top; throws ConfigError for
// those that cannot.
void use_new_data(ConfigNode& tree, const NewData& data);

// The data of a run is read with the tokenizer in its folder if the file of its configuration is
// gone. Throws like run_tokenizer().
void use_kept_tokenizer(ConfigNode& tree, const ResumeChoice& choice);

// Returns true if `folder` contains a Hugging Face model: config.json and safetensors files.
bool is_hugging_face_folder(const std::filesystem::path& folder);

// Makes the model that of such a folder, with keys of `model` that were set on the command line;
// without `data` of its own the tree then reads plain text.
void use_hugging_face_model(ConfigNode& tree, const std::filesystem::path& folder);

}  // namespace dltrain

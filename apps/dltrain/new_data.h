// Data that is given beside a trained model (`dltrain predict RUN new.csv`), and models that have
// no configuration of their own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/tree.h"

namespace dltrain {

struct NewData {
  std::filesystem::path path;        // file or folder
  std::filesystem::path tokenizer;   // folder of the model's; empty: none is there
  std::vector<std::string> classes;  // of the model
  bool targets = true;               // the data must have them
};

// Makes data.train of a run's configuration that data, read as evaluation reads its own; nothing
// else is read. Keys of `data` that were set on the command line lie on top.
void use_new_data(ConfigNode& tree, const NewData& data);

// Returns true if `folder` contains a Hugging Face model: config.json and safetensors files.
bool is_hugging_face_folder(const std::filesystem::path& folder);

// Makes the model that of such a folder; without `data` of its own the tree then reads plain text.
void use_hugging_face_model(ConfigNode& tree, const std::filesystem::path& folder);

}  // namespace dltrain

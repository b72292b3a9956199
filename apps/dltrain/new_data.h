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

// Replaces the section `data` of a run's configuration: data.train is the new data, read as
// evaluation reads its own, and there is no other split. Keys of `data` from the command line are
// kept; throws ConfigError for those that would have no effect.
void use_new_data(ConfigNode& tree, const NewData& data);

// Lets the data of a run be read with the tokenizer in its folder if that of its configuration does
// not exist any more. Throws like run_tokenizer().
void use_kept_tokenizer(ConfigNode& tree, const ResumeChoice& choice);

// Returns true if `folder` contains a Hugging Face model: config.json and safetensors files.
bool is_hugging_face_folder(const std::filesystem::path& folder);

// Sets the model to that of such a folder, with the keys of `model` from the command line. If the
// tree describes no data, it also sets how data for this model is read: plain text or images.
void use_hugging_face_model(ConfigNode& tree, const std::filesystem::path& folder);

}  // namespace dltrain

// The tensors of a model's files: of one safetensors file, or of a folder that has
// model.safetensors, or shards and model.safetensors.index.json, which says which tensor lies in
// which of them:
//
//   {"metadata": {"total_size": 88}, "weight_map": {"lm_head.weight":
//   "model-00001-of-00002.safetensors", …}}
//
// The files of a checkpoint's moments are called optimizer instead of model, and so on.
//
// Nothing in an index is trusted: shards are names without a folder, each must be there, and index
// and shards must name the same tensors, each once.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/safetensors.h"

namespace dltrain {

class SafetensorsSet {
 public:
  // `on_error`: as of SafetensorsFile. `stem`: what the files of a folder are called.
  SafetensorsSet(const std::filesystem::path& file_or_folder, ExitCode on_error,
                 const std::string& stem = "model");
  // Whether a folder has such files.
  static bool holds(const std::filesystem::path& folder, const std::string& stem = "model");

  struct Tensor {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // nullptr when there is none of that name.
  const Tensor* find(std::string_view name) const;
  // What errors call it: the file or folder.
  std::string name() const { return name_; }

 private:
  void open_shards(const std::filesystem::path& index, ExitCode on_error);
  void add(const SafetensorsFile& file);

  std::string name_;
  std::deque<SafetensorsFile> files_;
  std::vector<Tensor> tensors_;
};

// What an index says: the shard of each tensor. Throws the error `on_error` at `place`.
std::map<std::string, std::string> parse_safetensors_index(const std::string& text,
                                                           const std::string& place,
                                                           ExitCode on_error);

}  // namespace dltrain

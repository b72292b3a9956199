// The tensors of one safetensors file, or of a folder that has model.safetensors, or shards and
// model.safetensors.index.json, which has the shard of each tensor:
//
//   {"metadata": {"total_size": 88}, "weight_map": {"lm_head.weight":
//   "model-00001-of-00002.safetensors", …}}
//
// The files of a checkpoint's moments are named optimizer instead of model, and so on.
//
// An index is not trusted: shards must be names without a folder, each must exist, and index and
// shards must have the same tensors, each once.
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
  // `on_error` is that of SafetensorsFile. `stem` is the base name of the files of a folder.
  SafetensorsSet(const std::filesystem::path& file_or_folder, ExitCode on_error,
                 const std::string& stem = "model");
  // Returns true if a folder has such files.
  static bool holds(const std::filesystem::path& folder, const std::string& stem = "model");

  struct Tensor {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Returns nullptr if there is no tensor of that name.
  const Tensor* find(std::string_view name) const;
  // The file or folder, for errors.
  std::string name() const { return name_; }

 private:
  void open_shards(const std::filesystem::path& index, ExitCode on_error);
  void add(const SafetensorsFile& file);

  std::string name_;
  std::deque<SafetensorsFile> files_;
  std::vector<Tensor> tensors_;
};

// Returns the shard of each tensor in an index. Throws the error `on_error` at `location`.
std::map<std::string, std::string> parse_safetensors_index(const std::string& text,
                                                           const std::string& location,
                                                           ExitCode on_error);

}  // namespace dltrain

// Writes folders that Hugging Face's transformers can load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/huggingface/identify.h"
#include "text/tokenizer.h"

namespace dltrain {

// One tensor of a model with its name in dltrain; `values` are in the order of files. Without
// `values` it is an integer 0: PyTorch's counter of the batches that a batch norm has seen.
struct OutputTensor {
  std::string name;
  Shape shape = {};
  std::function<std::vector<float>()> values = {};
};

struct HuggingFaceFolder {
  std::filesystem::path path;
  std::optional<DType> dtype = {};     // f32 (the default), bf16 or f16
  uint64_t max_shard_bytes = 5e9;      // of the tensors of one file
  bool overwrite = false;              // an existing folder of a model may be replaced
  bool merge = false;                  // the adapters of model.lora go into the weights
  bool timm = false;                   // the names and the config.json of timm
  bool adapters = false;               // a folder of peft: the adapters alone
  std::vector<TokenizerFile> files;    // besides config.json and the weights
  std::vector<std::string> sets = {};  // keys of the run, such as model.init_from=PATH
};

struct WrittenFolder {
  int64_t tensors = 0;
  int64_t shards = 0;
  uint64_t bytes = 0;                        // of the tensors
  std::vector<std::string> not_finite = {};  // tensors with a NaN or an infinity
};

// Throws Error(usage) if `folder.path` exists and may not be replaced.
void check_output_folder(const HuggingFaceFolder& folder);

// Writes config.json, the weights (model.safetensors, or shards of at most max_shard_bytes with
// their index) and the files; the folder is complete or absent. With `adapters` it writes
// adapter_config.json and one adapter_model.safetensors. Throws Error(usage) as
// check_output_folder() and for values out of the range of f16, and Error(storage).
WrittenFolder write_huggingface_folder(const HuggingFaceFolder& folder,
                                       const IdentifiedModel& model,
                                       std::vector<OutputTensor> tensors);

}  // namespace dltrain

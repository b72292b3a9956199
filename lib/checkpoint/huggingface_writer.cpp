#include "checkpoint/huggingface_writer.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/atomic_directory.h"
#include "base/error.h"
#include "base/json.h"
#include "base/owned_files.h"
#include "tensor/float_tensors.h"
#include "tensor/safetensors_set.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

// The greatest finite f16.
constexpr float kMaxF16 = 65504;

// transformers' GPT-2 has biases everywhere; adds zeros for a model without biases.
void add_zero_biases(std::vector<OutputTensor>& tensors) {
  const size_t count = tensors.size();
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = tensors[i].name;
    const bool plain = name == "wte.weight" || name == "wpe.weight" || name == "lm_head.weight";
    if (plain || !name.ends_with(".weight")) continue;
    const int64_t width = tensors[i].shape[-1];
    tensors.push_back({name.substr(0, name.size() - 6) + "bias", {width}, [width] {
                         return std::vector<float>(static_cast<size_t>(width));
                       }});
  }
}

// PyTorch's batch norm counts its batches, for averages without momentum, which are not used here.
void add_batch_counters(std::vector<OutputTensor>& tensors) {
  constexpr std::string_view kVariance = "running_var";
  const size_t count = tensors.size();
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = tensors[i].name;
    if (!name.ends_with(kVariance)) continue;
    tensors.push_back({name.substr(0, name.size() - kVariance.size()) + "num_batches_tracked"});
  }
}

// Replaces tensors by the parts that the family has in files. The parts of a tensor are written one
// after the other, so its values are read once.
std::vector<OutputTensor> unstacked(std::vector<OutputTensor> tensors,
                                    const HuggingFaceFamily& family) {
  std::vector<OutputTensor> out;
  for (OutputTensor& tensor : tensors) {
    const int64_t division = family.parts(tensor.name);
    if (division == 1 || tensor.name.ends_with(']')) {
      out.push_back(std::move(tensor));
      continue;
    }
    const int64_t parts = division == kEachIndex ? tensor.shape[0] : division;
    const Shape shape = part_shape(tensor.shape, division);
    const auto whole = std::make_shared<std::vector<float>>();
    for (int64_t i = 0; i < parts; ++i) {
      out.push_back({part_name(tensor.name, i), shape,
                     [whole, i, parts, read = tensor.values, count = shape.elements()] {
                       if (whole->empty()) *whole = read();
                       const auto begin = whole->begin() + i * count;
                       std::vector<float> part(begin, begin + count);
                       if (i + 1 == parts) *whole = {};
                       return part;
                     }});
    }
  }
  return out;
}

// Distributes the tensors over files, in order, as many as fit.
std::vector<std::vector<OutputTensor>> cut(std::vector<OutputTensor> tensors,
                                           const HuggingFaceFolder& folder) {
  std::vector<std::vector<OutputTensor>> shards(1);
  uint64_t bytes = 0;
  for (OutputTensor& tensor : tensors) {
    const uint64_t size = TensorSpec{tensor.shape, folder.dtype.value_or(DType::f32)}.bytes();
    if (!shards.back().empty() && bytes + size > folder.max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += size;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

// Adds to `written`.
void write_shard(FileWriter& file, const std::vector<OutputTensor>& tensors, DType dtype,
                 WrittenFolder& written) {
  std::vector<NamedTensor> names;
  for (const OutputTensor& tensor : tensors) {
    names.push_back({tensor.name, {tensor.shape, tensor.values ? dtype : DType::i64}});
  }
  SafetensorsWriter writer(file, names, {{"format", "pt"}});
  for (const OutputTensor& tensor : tensors) {
    if (!tensor.values) {
      writer.write(tensor.name, std::vector<std::byte>(dtype_size(DType::i64)));
      continue;
    }
    const std::vector<float> values = tensor.values();
    if (!all_finite(values)) written.not_finite.push_back(tensor.name);
    const auto beyond = [](float v) { return std::isfinite(v) && std::abs(v) > kMaxF16; };
    if (dtype == DType::f16 && std::any_of(values.begin(), values.end(), beyond)) {
      fail(ExitCode::usage, "{} has values that f16 cannot hold; use bf16", tensor.name);
    }
    const std::vector<std::byte> converted = bytes_as(values, dtype);
    writer.write(tensor.name, converted);
    written.bytes += converted.size();
  }
  writer.finish();
  written.tensors += static_cast<int64_t>(tensors.size());
}

// Returns the name of a parameter in files of peft.
std::string peft_name(const HuggingFaceFamily& family, const std::string& name) {
  const std::string_view module = adapted_module(name);
  if (module.empty()) return std::string(kPeftModules) + family.exported(name);
  const std::string weight = family.exported(std::string(module) + ".weight");
  return std::string(kPeftModules) + std::string(module_of_weight(weight)) +
         name.substr(module.size());
}

bool is_model_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_empty(path, ignored) || fs::exists(path / kAdapterConfig, ignored) ||
         (fs::exists(path / "config.json", ignored) && SafetensorsSet::holds(path));
}

}  // namespace

void check_output_folder(const HuggingFaceFolder& folder) {
  std::error_code ignored;
  if (!fs::exists(folder.path, ignored)) return;
  if (!fs::is_directory(folder.path, ignored)) {
    fail(ExitCode::usage, "{} exists and is not a folder", folder.path.string());
  }
  if (!folder.overwrite) {
    fail(ExitCode::usage, "{} already exists; use --overwrite to replace it", folder.path.string());
  }
  if (!is_model_folder(folder.path)) {
    fail(ExitCode::usage, "{} is not the folder of a model, so --overwrite does not replace it",
         folder.path.string());
  }
  if (!fs::is_empty(folder.path, ignored)) check_all_owned(folder.path);
}

WrittenFolder write_huggingface_folder(const HuggingFaceFolder& folder,
                                       const IdentifiedModel& model,
                                       std::vector<OutputTensor> tensors) {
  check_output_folder(folder);
  if (model.lacks_biases) add_zero_biases(tensors);
  if (model.family->images) add_batch_counters(tensors);
  std::ranges::sort(tensors, {}, &OutputTensor::name);
  tensors = unstacked(std::move(tensors), *model.family);
  for (OutputTensor& tensor : tensors) {
    tensor.name = folder.adapters ? peft_name(*model.family, tensor.name)
                                  : model.family->exported(tensor.name);
  }
  const std::string stem = folder.adapters ? kAdapterStem : "model";
  const auto shards = cut(std::move(tensors), folder);

  const DType dtype = folder.dtype.value_or(DType::f32);
  AtomicDirectory out(folder.path);
  WrittenFolder written{.tensors = 0, .shards = static_cast<int64_t>(shards.size()), .bytes = 0};
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? stem + ".safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard(out.create(name), shards[i], dtype, written);
    for (const OutputTensor& tensor : shards[i]) map[tensor.name] = name;
  }
  if (shards.size() > 1) {
    const nlohmann::ordered_json index{{"metadata", {{"total_size", written.bytes}}},
                                       {"weight_map", map}};
    out.create("model.safetensors.index.json").write(json_text(index, 2) + "\n");
  }
  nlohmann::ordered_json config = model.config;
  if (!folder.adapters && !folder.timm) {
    config["torch_dtype"] = dtype == DType::f32    ? "float32"
                            : dtype == DType::bf16 ? "bfloat16"
                                                   : "float16";
  }
  out.create(folder.adapters ? kAdapterConfig : "config.json").write(json_text(config, 2) + "\n");
  for (const TokenizerFile& file : folder.files) out.create(file.name).write(file.content);
  out.publish();
  return written;
}

}  // namespace dltrain

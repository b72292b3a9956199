#include "tensor/safetensors_set.h"

#include <set>

#include <nlohmann/json.hpp>

namespace dltrain {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxIndex = 64 << 20;
constexpr size_t kMaxShards = 4096;
constexpr const char* kSingle = ".safetensors";
constexpr const char* kIndex = ".safetensors.index.json";

bool is_plain_name(const std::string& shard) {
  return shard.size() > 12 && shard.size() < 256 && shard.ends_with(".safetensors") &&
         shard.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

std::map<std::string, std::string> parse_safetensors_index(const std::string& text,
                                                           const std::string& location,
                                                           ExitCode on_error) {
  using nlohmann::json;
  // The parser keeps the last of equal keys, so they are counted as they come.
  std::set<std::string> seen;
  std::string twice;
  bool in_map = false;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event != json::parse_event_t::key) return true;
    const std::string key = parsed.get<std::string>();
    if (depth == 1) in_map = key == "weight_map";
    if (depth == 2 && in_map && !seen.insert(key).second && twice.empty()) twice = key;
    return true;
  };
  const json index = json::parse(text, watch, /*allow_exceptions=*/false);
  const auto refuse = [&](const std::string& message) { throw Error(on_error, message, location); };
  if (!index.is_object()) refuse("is not a JSON object");
  if (!twice.empty()) refuse(fmt::format("lists the tensor '{}' twice", twice));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) refuse("has no weight_map");
  std::map<std::string, std::string> out;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !is_plain_name(shard.get<std::string>())) {
      refuse(
          fmt::format("puts the tensor '{}' into what is no name of a safetensors file in this "
                      "folder",
                      tensor));
    }
    out.emplace(tensor, shard.get<std::string>());
  }
  return out;
}

bool SafetensorsSet::holds(const fs::path& folder, const std::string& stem) {
  return is_file(folder / (stem + kSingle)) || is_file(folder / (stem + kIndex));
}

SafetensorsSet::SafetensorsSet(const fs::path& path, ExitCode on_error, const std::string& stem)
    : name_(path.string()) {
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  const fs::path single = path / (stem + kSingle), index = path / (stem + kIndex);
  if (!folder || is_file(single)) {
    add(files_.emplace_back(folder ? single : path, on_error));
    return;
  }
  if (is_file(index)) {
    open_shards(index, on_error);
    return;
  }
  const bool pickled =
      is_file(path / "pytorch_model.bin") || is_file(path / "pytorch_model.bin.index.json");
  throw Error(on_error,
              fmt::format("has neither {}{} nor {}{}{}", stem, kSingle, stem, kIndex,
                          pickled ? "; pytorch_model.bin is not read, transformers' "
                                    "save_pretrained makes a safetensors file of it"
                                  : ""),
              name_);
}

const SafetensorsSet::Tensor* SafetensorsSet::find(std::string_view name) const {
  for (const Tensor& tensor : tensors_) {
    if (tensor.entry->name == name) return &tensor;
  }
  return nullptr;
}

void SafetensorsSet::add(const SafetensorsFile& file) {
  for (const SafetensorsEntry& entry : file.entries()) tensors_.push_back({&file, &entry});
}

void SafetensorsSet::open_shards(const fs::path& path, ExitCode on_error) {
  const auto shards =
      parse_safetensors_index(read_file(path, kMaxIndex, on_error), path.string(), on_error);
  const auto refuse = [&](const std::string& message) {
    throw Error(on_error, message, path.string());
  };
  std::map<std::string, const SafetensorsFile*> open;
  for (const auto& [tensor, shard] : shards) {
    const SafetensorsFile*& file = open[shard];
    if (file == nullptr) {
      if (open.size() > kMaxShards) refuse(fmt::format("names more than {} files", kMaxShards));
      if (!is_file(path.parent_path() / shard)) {
        refuse(fmt::format("names the file {}, which is not there", shard));
      }
      file = &files_.emplace_back(path.parent_path() / shard, on_error);
      add(*file);
    }
    if (file->find(tensor) == nullptr) {
      refuse(
          fmt::format("puts the tensor '{}' into {}, which has none of this name", tensor, shard));
    }
  }
  for (const Tensor& tensor : tensors_) {
    const auto listed = shards.find(tensor.entry->name);
    if (listed == shards.end() || open[listed->second] != tensor.file) {
      refuse(fmt::format("does not list the tensor '{}' of {}", tensor.entry->name,
                         tensor.file->path().filename().string()));
    }
  }
}

}  // namespace dltrain

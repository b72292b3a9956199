#include "checkpoint/weights.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include "base/error.h"
#include "checkpoint/run_folder.h"
#include "config/suggest.h"
#include "nn/huggingface/folder.h"
#include "nn/lora.h"

namespace dltrain {
namespace {

std::string renamed(const std::string& name, const TextPairs& rename) {
  std::string out = name;
  for (const auto& [pattern, replacement] : rename) {
    try {
      out = std::regex_replace(out, std::regex(pattern), replacement);
    } catch (const std::regex_error& error) {
      fail(ExitCode::usage, "model.rename: '{}' is not a regular expression ({})", pattern,
           error.what());
    }
  }
  return out;
}

std::string with_shape(const std::string& name, const Shape& shape) {
  return fmt::format("{} {}", name, to_string(shape));
}

struct Found {
  SafetensorsSet::Tensor tensor;
  bool spare = false;  // surplus without harm
};

// Returns the tensors of the files by their names in dltrain.
std::map<std::string, Found> named_tensors(const SafetensorsSet& files, const TextPairs& rename) {
  const HuggingFaceFamily* family = huggingface_family_of(files.name());
  std::map<std::string, Found> out;
  for (const SafetensorsSet::Tensor& tensor : files.tensors()) {
    const std::string& in_file = tensor.entry->name;
    // The batch counter of PyTorch's batch norm is not used, nor the frozen head that peft adds.
    if (in_file.ends_with(".num_batches_tracked")) continue;
    if (in_file.starts_with(kPeftModules) && in_file.ends_with(".base_layer.weight")) continue;
    TensorName name{renamed(in_file, rename)};
    if (family != nullptr) name = family->tensor(name.name);
    if (!out.emplace(name.name, Found{tensor, name.spare}).second) {
      fail(ExitCode::storage, "{}: two tensors are named {}{}", files.name(), name.name,
           rename.empty() ? "" : " after model.rename");
    }
  }
  return out;
}

// Returns the number of parts of a parameter in the files; 0 if they have it whole.
int64_t parts_of(const ParameterInfo& info, const std::map<std::string, Found>& by_name) {
  const auto has = [&](int64_t part) { return by_name.contains(part_name(info.name, part)); };
  if (info.file.stacked) return has(0) ? info.file.shape[0] : 0;
  int64_t parts = 0;
  while (has(parts)) ++parts;
  return parts > 0 && info.file.shape.rank() > 0 && info.file.shape[0] % parts == 0 ? parts : 0;
}

}  // namespace

void initialize_weights(StateStore& store, uint64_t seed) {
  std::vector<float> values;  // one memory for all of them
  for (const ParameterInfo& info : store.weights()) {
    const StateTensor* tensor = store.layout().find(info.name);
    if (tensor != nullptr && tensor->shard && !tensor->shard->is_here) continue;
    values.resize(static_cast<size_t>(info.spec.shape.elements()));
    initialize(info.initializer, seed, info.name, values);
    write_values(store, info, info.name, values);
  }
}

std::vector<FoundTensor> find_weights(const std::vector<ParameterInfo>& parameters,
                                      const SafetensorsSet& files, const TextPairs& rename,
                                      bool strict, LoadedWeights& report, bool keys) {
  std::map<std::string, Found> by_name = named_tensors(files, rename);
  std::vector<FoundTensor> out;
  // Takes the tensor of a parameter, or a part of it.
  const auto take = [&](const ParameterInfo& info, const std::string& name, const Shape& shape,
                        int64_t part) {
    const auto at = by_name.find(name);
    if (at == by_name.end()) {
      if (info.role == Role::parameter) report.missing.push_back(with_shape(name, shape));
      return;
    }
    const auto& [file, entry] = at->second.tensor;
    if (!(entry->spec.shape == shape)) {
      if (!strict) {
        report.reshaped.push_back(fmt::format("{} has shape {} in the file and {} in the model",
                                              name, to_string(entry->spec.shape),
                                              to_string(shape)));
        by_name.erase(at);
        return;
      }
      fail(ExitCode::storage, "{}: {} has shape {}, the model expects {}{}", file->path().string(),
           entry->name, to_string(entry->spec.shape), to_string(shape),
           keys ? "; strict: false leaves it out, so that all of it is initialised again" : "");
    }
    if (!is_floating(entry->spec.dtype)) {
      fail(ExitCode::storage, "{}: {} is {}, expected a floating dtype", file->path().string(),
           entry->name, to_string(entry->spec));
    }
    out.push_back({at->second.tensor, info.name, &info, part});
    by_name.erase(at);
  };
  for (const ParameterInfo& info : parameters) {
    const Shape& shape = info.file.shape;
    const int64_t parts = parts_of(info, by_name);
    if (parts == 0) {
      take(info, info.name, shape, -1);
      continue;
    }
    const size_t found = out.size();
    const Shape part = part_shape(shape, info.file.stacked ? kEachIndex : parts);
    for (int64_t i = 0; i < parts; ++i) take(info, part_name(info.name, i), part, i);
    // Parts are loaded only if all are there.
    if (out.size() != found + static_cast<size_t>(parts)) out.resize(found);
  }
  for (const auto& [name, found] : by_name) {
    if (found.spare) continue;
    report.unexpected.push_back(with_shape(name, found.tensor.entry->spec.shape));
  }
  if (strict && !(report.missing.empty() && report.unexpected.empty())) {
    const bool adapters = std::ranges::any_of(files.tensors(), [](const auto& tensor) {
      return !adapted_module(tensor.entry->name).empty();
    });
    fail(ExitCode::storage, "{} does not fit the model:{}{}{}{}{}{}", files.name(),
         report.missing.empty() ? "" : " it lacks ", some_names(report.missing, 8),
         report.unexpected.empty() ? ""
         : report.missing.empty()  ? " it has the unknown "
                                   : "; it has the unknown ",
         some_names(report.unexpected, 8), keys ? "; strict: false allows it" : "",
         adapters && !report.missing.empty()
             ? "; a checkpoint may have adapters alone (model.lora.save), and `dltrain export "
               "--merge` writes the whole model"
             : "");
  }
  const bool any = std::any_of(out.begin(), out.end(), [](const FoundTensor& weight) {
    return weight.info->role == Role::parameter;
  });
  if (!any && !report.reshaped.empty()) {
    fail(ExitCode::storage, "{} fits no parameter of the model: {}", files.name(),
         some_names(report.reshaped, 8));
  }
  if (!any && !parameters.empty()) {
    fail(ExitCode::storage,
         "{}: none of its tensors is a parameter of the model: it has {}; the model has {}{}",
         files.name(), some_names(report.unexpected, 8), some_names(report.missing, 8),
         keys ? " (model.rename changes names)" : "");
  }
  report.loaded = static_cast<int>(
      std::ranges::count_if(out, [](const FoundTensor& tensor) { return tensor.part <= 0; }));
  return out;
}

std::filesystem::path location_of_weights(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  const auto checkpoint = folder ? path : path.parent_path();
  if (std::filesystem::exists(checkpoint / "state.json", ignored)) {
    const auto found = find_checkpoint(checkpoint).checkpoint;
    return folder ? found : found / path.filename();
  }
  if (!folder || SafetensorsSet::holds(path)) return path;
  const bool has_checkpoints = std::filesystem::is_directory(path / "checkpoints", ignored) ||
                               !CheckpointFolder(path).list().empty();
  return has_checkpoints ? find_checkpoint(path).checkpoint : path;
}

VerifiedFiles verified_weights(const std::filesystem::path& from, const SafetensorsSet& weights) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(from, ignored);
  const auto folder = is_folder ? from : from.parent_path();
  // location_of_weights() has verified a checkpoint.
  if (std::filesystem::exists(folder / "state.json", ignored) ||
      !std::filesystem::exists(folder / kChecksumsFile, ignored)) {
    return VerifiedFiles(folder);
  }
  Checksums listed = read_checksums(folder), used;
  for (const auto& file : listed) {
    const std::string& name = file.first;
    for (const char* tokenizer : {"tokenizer", "vocab", "merges"}) {
      if (name.starts_with(tokenizer)) used.insert(file);
    }
  }
  for (const SafetensorsSet::Tensor& tensor : weights.tensors()) {
    const auto file = listed.find(tensor.file->path().filename());
    if (file != listed.end()) used.insert(*file);
  }
  return VerifiedFiles(folder, std::move(used));
}

void finish_verifying(VerifiedFiles& files) {
  const std::string damage = files.finish();
  if (damage.empty()) return;
  fail(ExitCode::storage, "{} (if another program has written the file since, remove {})", damage,
       kChecksumsFile);
}

namespace {

// Loads the tensors of `weights`, which were opened from `from`.
void load_verified(StateStore& store, std::vector<FoundTensor> tensors,
                   const std::filesystem::path& from, const SafetensorsSet& weights,
                   std::vector<std::string>* not_finite = nullptr) {
  VerifiedFiles files = verified_weights(from, weights);
  try {
    load_tensors(store, std::move(tensors), files, not_finite);
  } catch (const Error&) {
    finish_verifying(files);
    throw;
  }
  finish_verifying(files);
}

// Throws Error(usage) if parameters that adapters freeze are not in the file `from`.
void check_frozen(const std::vector<ParameterInfo>& wanted, const std::vector<FoundTensor>& found,
                  const std::filesystem::path& from) {
  std::vector<std::string> missing;
  std::set<std::string> modules;
  for (const ParameterInfo& info : wanted) {
    if (info.adaptation != Adaptation::frozen || info.role != Role::parameter ||
        std::ranges::find(found, &info, &FoundTensor::info) != found.end()) {
      continue;
    }
    missing.push_back(with_shape(info.name, info.file.shape));
    modules.insert(info.name.substr(0, info.name.rfind('.')) + ".*");
  }
  if (modules.empty()) return;
  fail(ExitCode::usage,
       "{} lacks {}, and model.lora freezes parameters of the base, so they would stay random; "
       "train them too: model.lora.also_train: [\"{}\"]",
       from.string(), some_names(missing, 8), fmt::join(modules, "\", \""));
}

}  // namespace

LoadedWeights load_weights(StateStore& store, const std::filesystem::path& path,
                           const TextPairs& rename, bool strict) {
  LoadedWeights report;
  report.from = location_of_weights(path);
  const SafetensorsSet files(report.from, ExitCode::storage);
  std::vector<ParameterInfo> wanted = store.weights();
  std::erase_if(wanted, [&](const ParameterInfo& info) {
    return info.adaptation == Adaptation::adapter && files.find(info.name) == nullptr;
  });
  const std::vector<FoundTensor> found = find_weights(wanted, files, rename, strict, report);
  check_frozen(wanted, found, report.from);
  load_verified(store, found, report.from, files, &report.not_finite);
  return report;
}

void load_adapters(StateStore& store, const std::filesystem::path& path) {
  const SafetensorsSet files(path, ExitCode::storage, kAdapterStem);
  std::vector<ParameterInfo> wanted = store.weights();
  std::erase_if(wanted, [](const ParameterInfo& info) {
    return info.role == Role::buffer || info.adaptation == Adaptation::frozen;
  });
  for (const ParameterInfo& info : wanted) {
    if (!info.shared) continue;
    fail(ExitCode::usage,
         "{} has {}, which is the weight of two layers here; peft trains a copy for each, which is "
         "not supported",
         path.string(), info.name);
  }
  const TextPairs names{{fmt::format("^{}({})?", kPeftModules, kGpt2Modules), ""}};
  LoadedWeights report;
  load_verified(store, find_weights(wanted, files, names, true, report, /*keys=*/false), path,
                files);
}

namespace {

// Calls use(tensor, its bytes, target) for each tensor for which target_of() finds a target; the
// shards of a tensor are collected over the ranks.
template <typename TargetOf, typename Use>
void each_whole_tensor(Executor& executor, const TargetOf& target_of, const Use& use) {
  std::vector<std::byte> bytes;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    const StateTensor* target = tensor.shard ? nullptr : target_of(tensor);
    if (target == nullptr) continue;
    bytes.resize(tensor.spec.bytes());
    executor.read_state(tensor.name, bytes);
    use(tensor, bytes, *target);
  }
  executor.collect_shards([&](const StateTensor& tensor, std::span<const std::byte> whole) {
    if (const StateTensor* target = target_of(tensor)) use(tensor, whole, *target);
  });
}

// As row_norms computes them (lib/ops/row_norms.cpp).
template <typename T>
std::vector<T> norms_of_rows(std::span<const std::byte> matrix, int64_t rows) {
  const auto* row = reinterpret_cast<const T*>(matrix.data());
  const size_t columns = matrix.size() / sizeof(T) / static_cast<size_t>(rows);
  std::vector<T> out;
  for (; out.size() < static_cast<size_t>(rows); row += columns) {
    double sum = 0;
    for (size_t i = 0; i < columns; ++i) sum += double{row[i]} * double{row[i]};
    out.push_back(static_cast<T>(std::sqrt(sum)));
  }
  return out;
}

}  // namespace

void start_magnitudes(Executor& executor) {
  const auto magnitude_of = [&](const StateTensor& weight) {
    const std::string module(module_of_weight(weight.name));
    return executor.layout().find(module + std::string(kLoraMagnitude));
  };
  each_whole_tensor(
      executor, magnitude_of,
      [&](const StateTensor& tensor, std::span<const std::byte> whole, const StateTensor& target) {
        const int64_t rows = tensor.spec.shape[0];
        if (tensor.spec.dtype == DType::f64) {
          const auto norms = norms_of_rows<double>(whole, rows);
          executor.write_state(target.name, std::as_bytes(std::span(norms)));
        } else {
          const auto norms = norms_of_rows<float>(whole, rows);
          executor.write_state(target.name, std::as_bytes(std::span(norms)));
        }
      });
}

void start_averages(Executor& executor) {
  const auto average_of = [&](const StateTensor& tensor) {
    return executor.layout().find(tensor.name, Role::ema);
  };
  each_whole_tensor(executor, average_of,
                    [&](const StateTensor&, std::span<const std::byte> whole,
                        const StateTensor& target) { executor.write_state(target.name, whole); });
}

std::deque<SafetensorsSet> trained_weights(const std::filesystem::path& checkpoint) {
  std::deque<SafetensorsSet> files;
  for (const char* stem : {"ema", "model"}) {
    if (!SafetensorsSet::holds(checkpoint, stem)) continue;
    files.emplace_back(checkpoint, ExitCode::storage, stem);
  }
  return files;
}

void load_trained(StateStore& store, const std::vector<ParameterInfo>& wanted,
                  const std::filesystem::path& checkpoint, std::string_view prefix) {
  const std::deque<SafetensorsSet> files = trained_weights(checkpoint);
  std::vector<FoundTensor> tensors;
  for (const ParameterInfo& info : wanted) {
    const std::string name = info.name.substr(prefix.size());
    const SafetensorsSet::Tensor* found = nullptr;
    for (const SafetensorsSet& candidate : files) {
      if (found == nullptr) found = candidate.find(name);
    }
    if (found == nullptr || !(found->entry->spec.shape == info.file.shape)) {
      fail(ExitCode::storage, "{}: no {} of shape {} for {}", checkpoint.string(), name,
           to_string(info.file.shape), info.name);
    }
    tensors.push_back({*found, info.name, &info});
  }
  VerifiedFiles folder(checkpoint);
  load_tensors(store, std::move(tensors), folder);
}

}  // namespace dltrain

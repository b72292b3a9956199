#include "checkpoint/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <regex>

#include "base/error.h"
#include "checkpoint/run_folder.h"
#include "nn/huggingface/folder.h"
#include "tensor/float_tensors.h"

namespace dltrain {
namespace {

// Returns the parameter whose file layout a state tensor has: averages and moments of a parameter's
// shape have its layout. nullptr: the layout of memory.
const ParameterInfo* file_info(const Executor& executor, const StateTensor& tensor) {
  const std::vector<ParameterInfo>& all = executor.training().parameters;
  const auto info = std::ranges::find(all, tensor.owner, &ParameterInfo::name);
  return info != all.end() && info->spec.shape == tensor.spec.shape ? &*info : nullptr;
}

// Returns the name in files: averages have the names of their parameters, moments are called
// "momentum.layers.0.weight".
std::string file_name(const StateTensor& tensor) {
  if (tensor.role == Role::ema || tensor.kind.empty()) return tensor.owner;
  return fmt::format("{}.{}", tensor.kind, tensor.owner);
}

void put_f32(WeightStore& store, const ParameterInfo& info, std::string_view name,
             std::span<const float> file) {
  std::vector<float> moved;
  std::span<const float> memory = file;
  if (!info.file.permutation.empty()) {
    moved.resize(file.size());
    file_to_memory(info, file, moved);
    memory = moved;
  }
  if (info.spec.dtype == DType::f64) {
    const std::vector<double> wide(memory.begin(), memory.end());
    store.write_state(name, std::as_bytes(std::span(wide)));
  } else {
    store.write_state(name, std::as_bytes(memory));
  }
}

// The formats of a parameter (precision.parameters).
bool is_parameter_format(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16;
}

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

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 8; ++i) out += (i ? ", " : "") + names[i];
  if (names.size() > 8) out += fmt::format(" and {} more", names.size() - 8);
  return out;
}

bool is_one_of(Role role, const std::vector<Role>& roles) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

}  // namespace

void initialize_weights(Executor& executor, uint64_t seed) {
  std::vector<float> values;  // one memory for all of them
  for (const ParameterInfo& info : executor.training().parameters) {
    values.resize(static_cast<size_t>(info.spec.shape.elements()));
    initialize(info.initializer, seed, info.name, values);
    put_f32(executor, info, info.name, values);
  }
}

namespace {

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
    // The batch counter of PyTorch's batch norm is not used.
    if (in_file.ends_with(".num_batches_tracked")) continue;
    TensorName name{renamed(in_file, rename)};
    if (family != nullptr) name = family->tensor(name.name);
    if (!out.emplace(name.name, Found{tensor, name.spare}).second) {
      fail(ExitCode::storage, "{}: two tensors are named {}{}", files.name(), name.name,
           rename.empty() ? "" : " after model.rename");
    }
  }
  return out;
}

}  // namespace

std::vector<FoundWeight> find_weights(const std::vector<ParameterInfo>& parameters,
                                      const SafetensorsSet& files, const TextPairs& rename,
                                      bool strict, LoadedWeights& report, bool keys) {
  std::map<std::string, Found> by_name = named_tensors(files, rename);
  std::vector<FoundWeight> out;
  for (const ParameterInfo& info : parameters) {
    const auto at = by_name.find(info.name);
    if (at == by_name.end()) {
      if (info.role == Role::parameter) {
        report.missing.push_back(with_shape(info.name, info.file.shape));
      }
      continue;
    }
    const auto& [file, entry] = at->second.tensor;
    if (!(entry->spec.shape == info.file.shape)) {
      fail(ExitCode::storage, "{}: {} has shape {}, the model expects {}", file->path().string(),
           entry->name, to_string(entry->spec.shape), to_string(info.file.shape));
    }
    if (!is_floating(entry->spec.dtype)) {
      fail(ExitCode::storage, "{}: {} is {}, expected a floating dtype", file->path().string(),
           entry->name, to_string(entry->spec));
    }
    out.push_back({&info, at->second.tensor});
    by_name.erase(at);
  }
  for (const auto& [name, found] : by_name) {
    if (found.spare) continue;
    report.unexpected.push_back(with_shape(name, found.tensor.entry->spec.shape));
  }
  if (strict && !(report.missing.empty() && report.unexpected.empty())) {
    fail(ExitCode::storage, "{} does not fit the model:{}{}{}{}{}", files.name(),
         report.missing.empty() ? "" : " it lacks ", listed(report.missing),
         report.unexpected.empty() ? ""
         : report.missing.empty()  ? " it has the unknown "
                                   : "; it has the unknown ",
         listed(report.unexpected), keys ? "; strict: false allows it" : "");
  }
  const bool any = std::any_of(out.begin(), out.end(), [](const FoundWeight& weight) {
    return weight.info->role == Role::parameter;
  });
  if (!any && !parameters.empty()) {
    fail(ExitCode::storage,
         "{}: none of its tensors is a parameter of the model: it has {}; the model has {}{}",
         files.name(), listed(report.unexpected), listed(report.missing),
         keys ? " (model.rename changes names)" : "");
  }
  report.loaded = static_cast<int>(out.size());
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

LoadedWeights load_weights(WeightStore& store, const std::filesystem::path& path,
                           const TextPairs& rename, bool strict) {
  LoadedWeights report;
  report.from = location_of_weights(path);
  const SafetensorsSet files(report.from, ExitCode::storage);
  for (const FoundWeight& found : find_weights(store.weights(), files, rename, strict, report)) {
    const std::vector<float> values = as_f32(*found.tensor.file, *found.tensor.entry);
    if (!all_finite(values)) report.not_finite.push_back(found.info->name);
    put_f32(store, *found.info, found.info->name, values);
  }
  return report;
}

void start_averages(Executor& executor) {
  const auto start = [&](const StateTensor& tensor, std::span<const std::byte> whole) {
    const StateTensor* average = executor.layout().find(tensor.name, Role::ema);
    if (average != nullptr) executor.write_state(average->name, whole);
  };
  std::vector<std::byte> bytes;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (tensor.shard || executor.layout().find(tensor.name, Role::ema) == nullptr) continue;
    bytes.resize(tensor.spec.bytes());
    executor.read_state(tensor.name, bytes);
    start(tensor, bytes);
  }
  executor.collect_shards(start);
}

std::deque<SafetensorsSet> trained_weights(const std::filesystem::path& checkpoint) {
  std::deque<SafetensorsSet> files;
  for (const char* stem : {"ema", "model"}) {
    if (!SafetensorsSet::holds(checkpoint, stem)) continue;
    files.emplace_back(checkpoint, ExitCode::storage, stem);
  }
  return files;
}

namespace {

// `inner`: returns the name in the checkpoint.
void load_from_checkpoint(WeightStore& store, const std::vector<ParameterInfo>& wanted,
                          std::string (*inner)(const std::string& name),
                          const std::filesystem::path& checkpoint, const char* whose) {
  const std::deque<SafetensorsSet> files = trained_weights(checkpoint);
  for (const ParameterInfo& info : wanted) {
    const std::string name = inner(info.name);
    const SafetensorsSet::Tensor* found = nullptr;
    for (const SafetensorsSet& candidate : files) {
      if (found == nullptr) found = candidate.find(name);
    }
    if (found == nullptr || !(found->entry->spec.shape == info.file.shape)) {
      fail(ExitCode::storage, "{}: no {} of shape {} for the {}", checkpoint.string(), name,
           to_string(info.file.shape), whose);
    }
    put_f32(store, info, info.name, as_f32(*found->file, *found->entry));
  }
}

}  // namespace

void load_constants(Executor& executor, const std::filesystem::path& checkpoint) {
  const auto inner = [](const std::string& name) { return name.substr(name.find('.') + 1); };
  load_from_checkpoint(executor, executor.training().constants, inner, checkpoint, "teacher");
}

void load_trained(WeightStore& store, const std::filesystem::path& checkpoint) {
  const auto inner = [](const std::string& name) { return name; };
  load_from_checkpoint(store, store.weights(), inner, checkpoint, "model");
}

namespace {

// Assigns the tensor to the rank with the least bytes so far.
int assign_writer(std::vector<size_t>& assigned, const StateTensor& tensor) {
  const auto least = std::min_element(assigned.begin(), assigned.end());
  *least += tensor.spec.bytes();
  return static_cast<int>(least - assigned.begin());
}

}  // namespace

void take_snapshot(Executor& executor, StateSnapshot& snapshot, bool live, int rank, int writers) {
  size_t next = 0;
  std::vector<size_t> assigned(static_cast<size_t>(writers));  // bytes, by rank
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (!rules_of(tensor.role).checkpointed) continue;
    if (next == snapshot.size()) snapshot.emplace_back();
    TensorCopy& copy = snapshot[next++];
    copy.name = file_name(tensor);
    copy.state = tensor.name;
    copy.spec = tensor.spec;
    copy.role = tensor.role;
    copy.info = file_info(executor, tensor);
    copy.owner = assign_writer(assigned, tensor);
    const bool own = copy.owner == rank;
    copy.live = own && live && !tensor.shard ? &executor : nullptr;
    if (!own || copy.live != nullptr) {
      copy.bytes = {};
      continue;
    }
    copy.bytes.resize(tensor.spec.bytes());
    if (!tensor.shard) executor.read_state(tensor.name, copy.bytes);
  }
  snapshot.resize(next);
  executor.collect_shards([&](const StateTensor& tensor, std::span<const std::byte> whole) {
    const auto copy = std::find_if(snapshot.begin(), snapshot.end(),
                                   [&](const TensorCopy& c) { return c.state == tensor.name; });
    if (copy->owner == rank) std::copy(whole.begin(), whole.end(), copy->bytes.begin());
  });
}

size_t snapshot_bytes(const Executor& executor, int writers) {
  std::vector<size_t> assigned(static_cast<size_t>(writers));
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (rules_of(tensor.role).checkpointed) assign_writer(assigned, tensor);
  }
  return *std::max_element(assigned.begin(), assigned.end());
}

bool holds_any(const StateSnapshot& snapshot, const std::vector<Role>& roles) {
  return std::any_of(snapshot.begin(), snapshot.end(),
                     [&](const TensorCopy& copy) { return is_one_of(copy.role, roles); });
}

bool has_any(const Executor& executor, const std::vector<Role>& roles) {
  const auto tensors = executor.layout().tensors();
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const StateTensor& tensor) { return is_one_of(tensor.role, roles); });
}

void save_tensors(const StateSnapshot& snapshot, FileWriter& file, const std::vector<Role>& roles,
                  const SafetensorsMetadata& metadata, int owner) {
  std::vector<NamedTensor> names;
  for (const TensorCopy& copy : snapshot) {
    if (copy.owner != owner || !is_one_of(copy.role, roles)) continue;
    names.push_back(
        {copy.name, {copy.info ? copy.info->file.shape : copy.spec.shape, copy.spec.dtype}});
  }
  SafetensorsWriter writer(file, names, metadata);
  std::vector<std::byte> fresh;
  std::vector<float> wide, ordered;
  for (const TensorCopy& copy : snapshot) {
    if (copy.owner != owner || !is_one_of(copy.role, roles)) continue;
    const std::span<const std::byte> bytes =
        copy.live != nullptr ? copy.live->view_state(copy.state, fresh) : std::span(copy.bytes);
    if (copy.info == nullptr || copy.info->file.permutation.empty()) {
      writer.write(copy.name, bytes);
      continue;
    }
    // Allocated memory and state are aligned for any element.
    std::span memory(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
    if (copy.spec.dtype == DType::bf16) {
      wide = floats_of(bytes, DType::bf16);
      memory = wide;
    }
    ordered.resize(memory.size());
    memory_to_file(*copy.info, memory, ordered);
    if (copy.spec.dtype == DType::bf16) {
      writer.write(copy.name, bytes_as(ordered, DType::bf16));
    } else {
      writer.write(copy.name, std::as_bytes(std::span(ordered)));
    }
  }
  writer.finish();
}

bool has_parameters_of(const Executor& executor, const std::filesystem::path& checkpoint) {
  const SafetensorsSet files(checkpoint, ExitCode::storage);
  size_t expected = 0;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (!is_one_of(tensor.role, {Role::parameter, Role::buffer})) continue;
    ++expected;
    const ParameterInfo* info = file_info(executor, tensor);
    const SafetensorsSet::Tensor* found = files.find(file_name(tensor));
    const Shape& shape = info ? info->file.shape : tensor.spec.shape;
    if (found == nullptr || !(found->entry->spec.shape == shape)) return false;
  }
  return files.tensors().size() == expected;
}

void restore_tensors(Executor& executor, const std::filesystem::path& checkpoint,
                     const std::string& stem, const std::vector<Role>& roles) {
  const SafetensorsSet files(checkpoint, ExitCode::storage, stem);
  const std::string path = (checkpoint / (stem + ".safetensors")).string();
  const std::string of = is_one_of(Role::moment, roles)
                             ? fmt::format("{} is of other optimizer settings", path)
                             : fmt::format("{} is of another model", path);
  size_t expected = 0;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (!is_one_of(tensor.role, roles)) continue;
    ++expected;
    const ParameterInfo* info = file_info(executor, tensor);
    const std::string name = file_name(tensor);
    const TensorSpec spec{info ? info->file.shape : tensor.spec.shape, tensor.spec.dtype};
    const SafetensorsSet::Tensor* found = files.find(name);
    if (found == nullptr) fail(ExitCode::storage, "{}: it has no {}", of, name);
    const SafetensorsEntry* entry = found->entry;
    // A run may be resumed with parameters of another format.
    const bool other_format = tensor.role == Role::parameter && info != nullptr &&
                              entry->spec.shape == spec.shape && entry->spec.dtype != spec.dtype &&
                              is_parameter_format(entry->spec.dtype) &&
                              is_parameter_format(spec.dtype);
    if (!(entry->spec == spec) && !other_format) {
      fail(ExitCode::storage, "{}: {} is {}, expected {}", of, name, to_string(entry->spec),
           to_string(spec));
    }
    if (!other_format && (info == nullptr || info->file.permutation.empty())) {
      executor.write_state(tensor.name, found->file->data(*entry));
    } else {
      put_f32(executor, *info, tensor.name, as_f32(*found->file, *entry));
    }
  }
  if (files.tensors().size() != expected) {
    fail(ExitCode::storage, "{}: it has {} tensors, expected {}", of, files.tensors().size(),
         expected);
  }
}

}  // namespace dltrain

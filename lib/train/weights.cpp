#include "train/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <regex>

#include "base/error.h"
#include "passes/update.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

// How a state tensor is kept in files. Averages and moments of a parameter's shape share its
// layout; nullptr: other state, which files keep as memory does.
const ParameterInfo* file_info(const Executor& executor, const StateTensor& tensor) {
  const std::string_view state_name = tensor.name;
  const ParameterInfo* best = nullptr;
  for (const ParameterInfo& info : executor.training().parameters) {
    if (state_name == info.name) return &info;
    if (state_name.size() > info.name.size() && state_name.ends_with(info.name) &&
        state_name[state_name.size() - info.name.size() - 1] == '.') {
      if (best == nullptr || info.name.size() > best->name.size()) best = &info;
    }
  }
  return best != nullptr && best->spec.shape == tensor.spec.shape ? best : nullptr;
}

// The name in a file: averages have the names of what they average.
std::string file_name(const StateTensor& tensor) {
  return tensor.role == Role::ema ? tensor.name.substr(average_name("").size()) : tensor.name;
}

void put_f32(Executor& executor, const ParameterInfo& info, std::string_view name,
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
    executor.write_state(name, std::as_bytes(std::span(wide)));
  } else {
    executor.write_state(name, std::as_bytes(memory));
  }
}

// Elements of a floating tensor as f32; empty for another dtype.
std::vector<float> as_f32(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  const auto bytes = file.data(entry);
  const auto n = static_cast<size_t>(entry.spec.shape.elements());
  std::vector<float> out;
  const auto convert = [&]<typename T>(T, auto to_float) {
    out.resize(n);
    for (size_t i = 0; i < n; ++i) {
      T element;
      std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
      out[i] = to_float(element);
    }
  };
  switch (entry.spec.dtype) {
    case DType::f32:
      convert(float{}, [](float v) { return v; });
      break;
    case DType::f64:
      convert(double{}, [](double v) { return static_cast<float>(v); });
      break;
    case DType::bf16:
      convert(Bf16{}, [](Bf16 v) { return to_f32(v); });
      break;
    case DType::f16:
      convert(F16{}, [](F16 v) { return to_f32(v); });
      break;
    default:
      break;
  }
  return out;
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

LoadedWeights load_weights(Executor& executor, const std::filesystem::path& path,
                           const TextPairs& rename, bool strict) {
  const SafetensorsFile file(path, ExitCode::storage);
  std::map<std::string, const SafetensorsEntry*> by_name;
  for (const SafetensorsEntry& entry : file.entries()) {
    // PyTorch's batch norm counts its batches; nothing here depends on that.
    if (entry.name.ends_with(".num_batches_tracked")) continue;
    const std::string name = renamed(entry.name, rename);
    if (!by_name.emplace(name, &entry).second) {
      fail(ExitCode::usage, "{}: two tensors are named {} after model.rename", path.string(), name);
    }
  }
  LoadedWeights out;
  for (const ParameterInfo& info : executor.training().parameters) {
    const auto at = by_name.find(info.name);
    if (at == by_name.end()) {
      if (info.role == Role::parameter) out.missing.push_back(info.name);
      continue;
    }
    const SafetensorsEntry& entry = *at->second;
    if (!(entry.spec.shape == info.file.shape)) {
      fail(ExitCode::storage, "{}: {} has shape {}, the model expects {}", path.string(),
           entry.name, to_string(entry.spec.shape), to_string(info.file.shape));
    }
    const std::vector<float> values = as_f32(file, entry);
    if (values.empty() && entry.spec.shape.elements() != 0) {
      fail(ExitCode::storage, "{}: {} is {}, expected a floating dtype", path.string(), entry.name,
           to_string(entry.spec));
    }
    put_f32(executor, info, info.name, values);
    ++out.loaded;
    by_name.erase(at);
  }
  for (const auto& [name, entry] : by_name) out.unexpected.push_back(name);
  if (strict && !(out.missing.empty() && out.unexpected.empty())) {
    fail(ExitCode::storage, "{} does not fit the model:{}{}{}{}; strict: false allows it",
         path.string(), out.missing.empty() ? "" : " it lacks ", listed(out.missing),
         out.unexpected.empty() ? "" : " it has the unknown ", listed(out.unexpected));
  }
  return out;
}

void start_averages(Executor& executor) {
  std::vector<std::byte> bytes;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (tensor.role != Role::ema) continue;
    bytes.resize(tensor.spec.bytes());
    executor.read_state(file_name(tensor), bytes);
    executor.write_state(tensor.name, bytes);
  }
}

void load_constants(Executor& executor, const std::filesystem::path& checkpoint) {
  std::vector<SafetensorsFile> files;
  for (const char* name : {"ema.safetensors", "model.safetensors"}) {
    if (std::filesystem::exists(checkpoint / name)) {
      files.emplace_back(checkpoint / name, ExitCode::storage);
    }
  }
  for (const ParameterInfo& info : executor.training().constants) {
    const std::string name = info.name.substr(info.name.find('.') + 1);
    const SafetensorsFile* file = nullptr;
    for (const SafetensorsFile& candidate : files) {
      if (file == nullptr && candidate.find(name) != nullptr) file = &candidate;
    }
    const SafetensorsEntry* entry = file != nullptr ? file->find(name) : nullptr;
    if (entry == nullptr || !(entry->spec.shape == info.file.shape)) {
      fail(ExitCode::storage, "{}: no {} of shape {} for the teacher", checkpoint.string(), name,
           to_string(info.file.shape));
    }
    put_f32(executor, info, info.name, as_f32(*file, *entry));
  }
}

void take_snapshot(Executor& executor, StateSnapshot& snapshot, bool live) {
  size_t next = 0;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (!rules_of(tensor.role).checkpointed) continue;
    if (next == snapshot.size()) snapshot.emplace_back();
    TensorCopy& copy = snapshot[next++];
    copy.name = file_name(tensor);
    copy.state = tensor.name;
    copy.spec = tensor.spec;
    copy.role = tensor.role;
    copy.info = file_info(executor, tensor);
    copy.live = live ? &executor : nullptr;
    if (live) {
      copy.bytes = {};
      continue;
    }
    copy.bytes.resize(tensor.spec.bytes());
    executor.read_state(tensor.name, copy.bytes);
  }
  snapshot.resize(next);
}

size_t snapshot_bytes(const Executor& executor) {
  size_t sum = 0;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (rules_of(tensor.role).checkpointed) sum += tensor.spec.bytes();
  }
  return sum;
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
                  const SafetensorsMetadata& metadata) {
  std::vector<NamedTensor> names;
  for (const TensorCopy& copy : snapshot) {
    if (!is_one_of(copy.role, roles)) continue;
    names.push_back(
        {copy.name, {copy.info ? copy.info->file.shape : copy.spec.shape, copy.spec.dtype}});
  }
  SafetensorsWriter writer(file, names, metadata);
  std::vector<std::byte> fresh;
  std::vector<float> ordered;
  for (const TensorCopy& copy : snapshot) {
    if (!is_one_of(copy.role, roles)) continue;
    const std::span<const std::byte> bytes =
        copy.live != nullptr ? copy.live->view_state(copy.state, fresh) : std::span(copy.bytes);
    if (copy.info == nullptr || copy.info->file.permutation.empty()) {
      writer.write(copy.name, bytes);
      continue;
    }
    // Allocated memory and state are aligned for any element.
    const std::span memory(reinterpret_cast<const float*>(bytes.data()),
                           bytes.size() / sizeof(float));
    ordered.resize(memory.size());
    memory_to_file(*copy.info, memory, ordered);
    writer.write(copy.name, std::as_bytes(std::span(ordered)));
  }
  writer.finish();
}

void restore_tensors(Executor& executor, const std::filesystem::path& path,
                     const std::vector<Role>& roles) {
  const SafetensorsFile file(path, ExitCode::storage);
  const std::string of = is_one_of(Role::moment, roles)
                             ? fmt::format("{} is of other optimizer settings", path.string())
                             : fmt::format("{} is of another model", path.string());
  size_t expected = 0;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (!is_one_of(tensor.role, roles)) continue;
    ++expected;
    const ParameterInfo* info = file_info(executor, tensor);
    const std::string name = file_name(tensor);
    const TensorSpec spec{info ? info->file.shape : tensor.spec.shape, tensor.spec.dtype};
    const SafetensorsEntry* entry = file.find(name);
    if (entry == nullptr) fail(ExitCode::storage, "{}: it has no {}", of, name);
    if (!(entry->spec == spec)) {
      fail(ExitCode::storage, "{}: {} is {}, expected {}", of, name, to_string(entry->spec),
           to_string(spec));
    }
    if (info == nullptr || info->file.permutation.empty()) {
      executor.write_state(tensor.name, file.data(*entry));
    } else {
      put_f32(executor, *info, tensor.name, as_f32(file, *entry));
    }
  }
  if (file.entries().size() != expected) {
    fail(ExitCode::storage, "{}: it has {} tensors, expected {}", of, file.entries().size(),
         expected);
  }
}

}  // namespace dltrain

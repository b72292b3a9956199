#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <map>
#include <set>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/atomic_directory.h"
#include "base/error.h"
#include "base/json.h"
#include "base/owned_files.h"
#include "base/run_lock.h"
#include "checkpoint/load_tensors.h"
#include "checkpoint/weights.h"
#include "tensor/safetensors_set.h"

namespace dltrain {
namespace {

constexpr const char* kSuffix = ".safetensors";

std::string step_name(int64_t step) {
  return fmt::format("step-{:06}", step);
}

// In the marker of the run folder.
void claim_checkpoint(const std::filesystem::path& folder, int64_t step) {
  claim_files(folder.parent_path(), {folder.filename() / step_name(step)});
}

bool is_step_name(const std::string& name) {
  return name.size() >= 11 && name.size() <= 23 && name.starts_with("step-") &&
         name.find_first_not_of("0123456789", 5) == std::string::npos;
}

// The files of a checkpoint with their names and roles; the last one is optional.
struct TensorFile {
  const char* stem;
  std::vector<Role> roles;
};
const std::vector<TensorFile>& tensor_files() {
  static const std::vector<TensorFile> files{{"model", {Role::parameter, Role::buffer}},
                                             {"optimizer", {Role::moment, Role::carried}},
                                             {"ema", {Role::ema}}};
  return files;
}
bool is_optional(const TensorFile& file) {
  return file.roles.front() == Role::ema;
}

bool has_any(const Executor& executor, const std::vector<Role>& roles) {
  return std::ranges::any_of(executor.layout().tensors(), [&](const StateTensor& tensor) {
    return is_one_of(tensor.role, roles);
  });
}

// The name of the file that each owner of such tensors writes.
std::map<int, std::string> part_names(const StateSnapshot& snapshot, const TensorFile& file) {
  std::map<int, std::string> names;
  for (const TensorCopy& copy : snapshot) {
    if (is_one_of(copy.role, file.roles)) names[copy.owner];
  }
  if (names.empty() && !is_optional(file)) names[0];  // a file without tensors
  size_t number = 0;
  for (auto& [owner, name] : names) {
    name = names.size() == 1
               ? fmt::format("{}{}", file.stem, kSuffix)
               : fmt::format("{}-{:05}-of-{:05}{}", file.stem, ++number, names.size(), kSuffix);
  }
  return names;
}

// Throws Error(storage) if the list of checksums lacks a file, whose damage would not be noticed.
void check_files(const std::filesystem::path& checkpoint, const Checksums& listed,
                 std::vector<std::string> needed) {
  if (needed.empty()) {  // format 1 does not list them
    needed = {"config.yaml"};
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
      const std::string name = entry.path().filename().string();
      if (name.find(kSuffix) != std::string::npos) needed.push_back(name);
    }
    if (!SafetensorsSet::holds(checkpoint)) needed.push_back(std::string("model") + kSuffix);
  }
  for (const std::string& name : needed) {
    if (listed.contains(name)) continue;
    fail(ExitCode::storage, "{}: damaged: it does not list {}",
         (checkpoint / kChecksumsFile).string(), name);
  }
}

// The formats of a parameter (precision.parameters).
bool is_parameter_format(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16;
}

// Finds the tensors of a file of a checkpoint; each must be there, and no other.
std::vector<FoundTensor> find_tensors(const Executor& executor, const SafetensorsSet& files,
                                      const TensorFile& file) {
  const std::string of = fmt::format(
      "{}/{}{} is of {}", files.name(), file.stem, kSuffix,
      is_one_of(Role::moment, file.roles) ? "other optimizer settings" : "another model");
  std::vector<FoundTensor> out;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (!is_one_of(tensor.role, file.roles)) continue;
    const StateInFiles there = in_files(executor, tensor);
    const TensorSpec spec{there.shape, tensor.spec.dtype};
    const SafetensorsSet::Tensor* found = files.find(there.name);
    if (found == nullptr) fail(ExitCode::storage, "{}: it has no {}", of, there.name);
    const TensorSpec& saved = found->entry->spec;
    // A run may be resumed with parameters of another format.
    const bool other_format = tensor.role == Role::parameter && there.info != nullptr &&
                              saved.shape == spec.shape && is_parameter_format(saved.dtype) &&
                              is_parameter_format(spec.dtype);
    if (!(saved == spec) && !other_format) {
      const bool other_shape = tensor.role == Role::parameter && !(saved.shape == spec.shape);
      fail(ExitCode::storage, "{}: {} is {}, expected {}{}", of, there.name, to_string(saved),
           to_string(spec),
           other_shape ? "; the shapes of the data decide those of the model (other transforms, "
                         "image sizes or lengths than in training?)"
                       : "");
    }
    out.push_back({*found, tensor.name, there.info});
  }
  if (files.tensors().size() != out.size()) {
    fail(ExitCode::storage, "{}: it has {} tensors, expected {}", of, files.tensors().size(),
         out.size());
  }
  return out;
}

}  // namespace

void CheckpointFolder::clean() {
  if (std::filesystem::exists(folder_)) remove_leftovers(folder_);
}

std::vector<std::filesystem::path> CheckpointFolder::list() const {
  std::vector<std::filesystem::path> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    if (is_step_name(entry.path().filename().string()) && !entry.is_symlink()) {
      out.push_back(entry.path());
    }
  }
  std::ranges::sort(out, {}, checkpoint_step);
  return out;
}

void CheckpointFolder::begin(int64_t step) {
  directory_.reset();
  claim_checkpoint(folder_, step);
  directory_ = std::make_unique<AtomicDirectory>(folder_ / step_name(step));
}

Checksums CheckpointFolder::write_part(const StateSnapshot& snapshot, int64_t step,
                                       int rank) const {
  const auto temporary = AtomicDirectory::temporary_folder(folder_ / step_name(step));
  Checksums out;
  for (const TensorFile& file : tensor_files()) {
    const auto names = part_names(snapshot, file);
    const auto name = names.find(rank);
    if (name == names.end()) continue;
    FileWriter writer(temporary / name->second);
    save_tensors(snapshot, writer, file.roles, rank);
    writer.sync();
    out[name->second] = writer.close();
  }
  return out;
}

std::filesystem::path CheckpointFolder::finish(const StateSnapshot& snapshot,
                                               const CheckpointState& state,
                                               const std::string& config,
                                               const Retention& retention,
                                               const std::vector<Checksums>& parts) {
  for (const Checksums& part : parts) {
    for (const auto& [name, digest] : part) directory_->adopt(name, digest);
  }
  for (const TensorFile& file : tensor_files()) {
    const auto names = part_names(snapshot, file);
    if (names.size() < 2) continue;
    nlohmann::ordered_json map = nlohmann::ordered_json::object();
    size_t bytes = 0;
    for (const TensorCopy& copy : snapshot) {
      if (!is_one_of(copy.role, file.roles)) continue;
      map[copy.name] = names.at(copy.owner);
      bytes += copy.spec.bytes();
    }
    const nlohmann::ordered_json index{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}};
    directory_->create(file.stem + std::string(kSuffix) + ".index.json")
        .write(json_text(index, 2) + "\n");
  }
  const std::filesystem::path out = publish(state, config);
  remove_old(retention);
  return out;
}

std::filesystem::path CheckpointFolder::publish(const CheckpointState& state,
                                                const std::string& config) {
  directory_->create("config.yaml").write(config);
  const std::string json = to_json(state, directory_->names());
  directory_->create("state.json").write(json);
  claim_checkpoint(folder_, state.step);  // again: the run folder may have been replaced meanwhile
  directory_->publish();
  directory_.reset();
  set_link("latest", state.step);
  if (state.best.step == state.step) set_link("best", state.step);
  return folder_ / step_name(state.step);
}

std::filesystem::path CheckpointFolder::write_weights(
    const CheckpointState& state, const std::string& config,
    const std::function<void(FileWriter&)>& write) {
  begin(state.step);
  write(directory_->create("model.safetensors"));
  return publish(state, config);
}

void CheckpointFolder::set_link(const char* name, int64_t step) {
  const std::filesystem::path link = folder_ / name,
                              beside = folder_ / (".tmp-" + std::string(name));
  std::error_code error;
  std::filesystem::remove(beside, error);
  std::filesystem::create_symlink(step_name(step), beside, error);
  if (error) fail_storage(beside, "link", error.value());
  std::filesystem::rename(beside, link, error);
  if (error) fail_storage(link, "rename", error.value());
  sync_directory(folder_);
}

void CheckpointFolder::remove_old(const Retention& retention) {
  if (retention.newest <= 0) return;
  const auto all = list();
  std::set<std::filesystem::path> linked;
  for (const char* link : {"latest", "best"}) {
    std::error_code ignored;
    linked.insert(std::filesystem::read_symlink(folder_ / link, ignored).filename());
  }
  for (size_t i = 0; i + static_cast<size_t>(retention.newest) < all.size(); ++i) {
    const int64_t step = checkpoint_step(all[i]);
    const bool kept = linked.contains(all[i].filename()) ||
                      (retention.keep_every > 0 && step % retention.keep_every == 0);
    if (!kept) remove_unless_kept(all[i]);
  }
}

void CheckpointFolder::repair_links(const CheckpointState& state) {
  for (const auto& [link, step] : {std::pair("latest", state.step), {"best", state.best.step}}) {
    std::error_code ignored;
    if (std::filesystem::exists(folder_ / step_name(step), ignored)) {
      set_link(link, step);
    } else if (std::filesystem::is_symlink(folder_ / link, ignored)) {
      remove_recursively(folder_ / link);
    }
  }
}

int64_t checkpoint_step(const std::filesystem::path& checkpoint) {
  return std::stoll(checkpoint.filename().string().substr(5));
}

CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint, Checksums* tensors) {
  const Checksums listed = read_checksums(checkpoint);
  Checksums small = listed;
  if (tensors != nullptr) {
    *tensors = listed;
    std::erase_if(*tensors, [](const auto& file) { return !file.first.ends_with(kSuffix); });
    std::erase_if(small, [](const auto& file) { return file.first.ends_with(kSuffix); });
  }
  VerifiedFiles files(checkpoint, small);
  for (const auto& [name, digest] : small) files.read(name);
  check_files(checkpoint, listed, {"state.json"});
  std::vector<std::string> names;
  const CheckpointState state = read_state_file(checkpoint / "state.json", names);
  check_files(checkpoint, listed, names);
  return state;
}

void load_checkpoint(Executor& executor, const std::filesystem::path& checkpoint,
                     const CheckpointState& state) {
  VerifiedFiles files(checkpoint);
  load_checkpoint(executor, checkpoint, state, files);
}

void load_checkpoint(Executor& executor, const std::filesystem::path& checkpoint,
                     const CheckpointState& state, VerifiedFiles& files) {
  for (const TensorFile& file : tensor_files()) {
    if (!state.made_by.empty() && file.roles.front() != Role::parameter) continue;
    if (is_optional(file)) {
      const bool saved = SafetensorsSet::holds(checkpoint, file.stem);
      if (saved != has_any(executor, file.roles)) {
        fail(ExitCode::usage, "{} was saved {} training.ema, this configuration has {}",
             checkpoint.string(), saved ? "with" : "without", saved ? "none" : "it");
      }
      if (!saved) continue;
    }
    if (!has_any(executor, file.roles) && !SafetensorsSet::holds(checkpoint, file.stem)) continue;
    const SafetensorsSet tensors(checkpoint, ExitCode::storage, file.stem);
    load_tensors(executor, find_tensors(executor, tensors, file), files);
  }
  if (!state.made_by.empty()) start_averages(executor);
  // Without a saved scale the initial scale of the configuration is kept.
  executor.set_progress({.updates = state.updates,
                         .loss_scale = state.loss_scale.value_or(executor.progress().loss_scale),
                         .scale_streak = state.scale_streak});
}

bool has_state_of(const Executor& executor, const std::filesystem::path& checkpoint, Role role) {
  const auto file = std::ranges::find_if(
      tensor_files(), [&](const TensorFile& one) { return is_one_of(role, one.roles); });
  try {
    const bool saved = SafetensorsSet::holds(checkpoint, file->stem);
    if (!saved && !has_any(executor, file->roles)) return true;
    find_tensors(executor, SafetensorsSet(checkpoint, ExitCode::storage, file->stem), *file);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace dltrain

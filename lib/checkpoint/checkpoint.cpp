#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/atomic_directory.h"
#include "base/error.h"
#include "base/owned_files.h"
#include "base/run_lock.h"
#include "base/version.h"
#include "checkpoint/weights.h"
#include "tensor/safetensors_set.h"

namespace dltrain {
namespace {

// 2: `files`, times, tokens and fingerprints.
constexpr int kFormat = 2;
constexpr uint64_t kMaxStateBytes = 64 << 20;  // tables may have many categories
constexpr const char* kSuffix = ".safetensors";

constexpr std::pair<const char*, std::string CheckpointState::*> kTexts[] = {
    {"optimizer", &CheckpointState::optimizer},
    {"data_fingerprint", &CheckpointState::data_fingerprint},
    {"tokenizer", &CheckpointState::tokenizer},
    {"teacher", &CheckpointState::teacher},
    {"teacher_checkpoint", &CheckpointState::teacher_checkpoint}};

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
  static const std::vector<TensorFile> files{
      {"model", {Role::parameter, Role::buffer}},
      {"optimizer", {Role::moment, Role::carried, Role::scale}},
      {"ema", {Role::ema}}};
  return files;
}
bool is_optional(const TensorFile& file) {
  return file.roles.front() == Role::ema;
}

bool holds(const TensorFile& file, const TensorCopy& copy) {
  return std::find(file.roles.begin(), file.roles.end(), copy.role) != file.roles.end();
}

// The name of the file that each owner of such tensors writes.
std::map<int, std::string> part_names(const StateSnapshot& snapshot, const TensorFile& file) {
  std::map<int, std::string> names;
  for (const TensorCopy& copy : snapshot) {
    if (holds(file, copy)) names[copy.owner];
  }
  size_t number = 0;
  for (auto& [owner, name] : names) {
    name = fmt::format("{}-{:05}-of-{:05}{}", file.stem, ++number, names.size(), kSuffix);
  }
  return names;
}

SafetensorsMetadata metadata() {
  return {{"format", "pt"}, {"dltrain", std::string(version())}};
}

nlohmann::ordered_json to_json(const MetricRecord& record) {
  if (record.metric.empty()) return nullptr;
  return {{"metric", record.metric},
          {"step", record.step},
          {"value", record.value},
          {"since", record.since}};
}

// Returns an empty record if it is absent (checkpoints of earlier versions) or malformed.
MetricRecord metric_record(const nlohmann::json& state, const char* key) {
  const auto found = state.find(key);
  if (found == state.end() || !found->is_object()) return {};
  const nlohmann::json& j = *found;
  const auto counter = [&](const char* name) {
    return j.contains(name) && j[name].is_number_integer() && j[name].get<int64_t>() >= 0;
  };
  if (!j.contains("metric") || !j["metric"].is_string() || !counter("step") || !counter("since") ||
      !j.contains("value") || !j["value"].is_number()) {
    return {};
  }
  return {.metric = j["metric"].get<std::string>(),
          .step = j["step"].get<int64_t>(),
          .value = j["value"].get<double>(),
          .since = j["since"].get<int64_t>()};
}

// Returns an empty list if there is no such key.
std::vector<std::string> texts_of(const nlohmann::json& json, const char* key,
                                  const std::filesystem::path& path) {
  std::vector<std::string> out;
  const auto texts = json.find(key);
  if (texts == json.end()) return out;
  for (const auto& text : *texts) {
    if (!texts->is_array() || !text.is_string()) {
      fail(ExitCode::storage, "{}: {} is not a list of texts", path.string(), key);
    }
    out.push_back(text.get<std::string>());
  }
  return out;
}

// Returns an empty schema if there is none, as in checkpoints of earlier versions.
DataSchema data_schema_of(const nlohmann::json& json, const std::filesystem::path& path) {
  const auto data = json.find("data");
  DataSchema out =
      data == json.end() ? DataSchema{} : schema_from_json(data->dump(), path.string());
  out.class_names = texts_of(json, "class_names", path);
  return out;
}

std::string text_of(const nlohmann::json& json, const char* key) {
  const auto text = json.find(key);
  return text != json.end() && text->is_string() ? text->get<std::string>() : "";
}

double number_of(const nlohmann::json& json, const char* key) {
  const auto number = json.find(key);
  return number != json.end() && number->is_number() ? number->get<double>() : 0;
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
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return checkpoint_step(a) < checkpoint_step(b); });
  return out;
}

std::filesystem::path CheckpointFolder::save(const StateSnapshot& snapshot,
                                             const CheckpointState& state,
                                             const std::string& config,
                                             const Retention& retention) {
  claim_checkpoint(folder_, state.step);
  AtomicDirectory directory(folder_ / step_name(state.step));
  for (const TensorFile& file : tensor_files()) {
    if (is_optional(file) && !holds_any(snapshot, file.roles)) continue;
    save_tensors(snapshot, directory.create(file.stem + std::string(kSuffix)), file.roles,
                 metadata());
  }
  return publish(directory, state, config, retention);
}

std::filesystem::path CheckpointFolder::publish(AtomicDirectory& directory,
                                                const CheckpointState& state,
                                                const std::string& config,
                                                const Retention& retention) {
  nlohmann::ordered_json json{{"format", kFormat},
                              {"step", state.step},
                              {"updates", state.updates},
                              {"seed", state.seed},
                              {"global_batch_size", state.global_batch},
                              {"train_samples", state.train_samples},
                              {"best", to_json(state.best)},
                              {"early_stopping", to_json(state.early_stopping)},
                              {"dltrain", std::string(version())}};
  if (!state.data.class_names.empty()) json["class_names"] = state.data.class_names;
  if (state.data.recorded()) json["data"] = nlohmann::ordered_json::parse(to_json(state.data));
  if (state.evaluation_due) json["evaluation_due"] = true;
  directory.create("config.yaml").write(config);
  json["files"] = directory.names();
  json["tokens_seen"] = state.tokens_seen;
  json["saved_at"] = state.saved_at;
  for (const auto& [name, seconds] : kTimeSpent) json["seconds"][name] = state.time.*seconds;
  for (const auto& [key, text] : kTexts) {
    if (!(state.*text).empty()) json[key] = state.*text;
  }
  if (state.loss_scale) {
    json["loss_scale"] = *state.loss_scale;
    json["scale_streak"] = state.scale_streak;
  }
  directory.create("state.json").write(json.dump(2) + "\n");
  directory.publish();
  set_link("latest", state.step);
  if (state.best.step == state.step) set_link("best", state.step);
  remove_old(state, retention);
  return folder_ / step_name(state.step);
}

void CheckpointFolder::begin_sharded(int64_t step) {
  claim_checkpoint(folder_, step);
  sharded_ = std::make_unique<AtomicDirectory>(folder_ / step_name(step));
}

Checksums CheckpointFolder::write_part(const StateSnapshot& snapshot, int64_t step, int rank) {
  const auto temporary = AtomicDirectory::temporary_folder(folder_ / step_name(step));
  Checksums out;
  for (const TensorFile& file : tensor_files()) {
    const std::string name = part_names(snapshot, file)[rank];
    if (name.empty()) continue;
    FileWriter writer(temporary / name);
    save_tensors(snapshot, writer, file.roles, metadata(), rank);
    writer.sync();
    out[name] = writer.close();
  }
  return out;
}

std::filesystem::path CheckpointFolder::finish_sharded(const StateSnapshot& snapshot,
                                                       const CheckpointState& state,
                                                       const std::string& config,
                                                       const Retention& retention,
                                                       const std::vector<Checksums>& parts) {
  for (const Checksums& part : parts) {
    for (const auto& [name, digest] : part) sharded_->adopt(name, digest);
  }
  for (const TensorFile& file : tensor_files()) {
    if (!holds_any(snapshot, file.roles)) continue;
    auto names = part_names(snapshot, file);
    nlohmann::ordered_json map = nlohmann::ordered_json::object();
    size_t bytes = 0;
    for (const TensorCopy& copy : snapshot) {
      if (!holds(file, copy)) continue;
      map[copy.name] = names[copy.owner];
      bytes += copy.spec.bytes();
    }
    const nlohmann::ordered_json index{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}};
    sharded_->create(file.stem + std::string(kSuffix) + ".index.json").write(index.dump(2) + "\n");
  }
  const auto path = publish(*sharded_, state, config, retention);
  sharded_.reset();
  return path;
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

void CheckpointFolder::remove_old(const CheckpointState& state, const Retention& retention) {
  if (retention.newest <= 0) return;
  const auto all = list();
  for (size_t i = 0; i + static_cast<size_t>(retention.newest) < all.size(); ++i) {
    const int64_t step = checkpoint_step(all[i]);
    const bool kept = step == state.step || step == state.best.step ||
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

CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint) {
  const Checksums listed = verify_checksums(checkpoint);
  check_files(checkpoint, listed, {"state.json"});
  const std::filesystem::path path = checkpoint / "state.json";
  const auto json =
      nlohmann::json::parse(read_file(path, kMaxStateBytes, ExitCode::storage), nullptr, false);
  const auto number = [&](const char* key) -> int64_t {
    if (!json.is_object() || !json.contains(key) || !json[key].is_number_integer()) {
      fail(ExitCode::storage, "{}: '{}' is not an integer", path.string(), key);
    }
    return json[key].get<int64_t>();
  };
  const int64_t format = number("format");
  if (format < 1 || format > kFormat) {
    fail(ExitCode::storage, "{}: format {} (dltrain {}); this program reads formats 1 to {}",
         path.string(), format, text_of(json, "dltrain"), kFormat);
  }
  check_files(checkpoint, listed, texts_of(json, "files", path));
  CheckpointState state{.format = format,
                        .step = number("step"),
                        .updates = number("updates"),
                        .seed = number("seed"),
                        .global_batch = number("global_batch_size"),
                        .train_samples = number("train_samples"),
                        .best = metric_record(json, "best"),
                        .early_stopping = metric_record(json, "early_stopping"),
                        .data = data_schema_of(json, path)};
  state.saved_at = number_of(json, "saved_at");
  if (json.contains("tokens_seen")) state.tokens_seen = number("tokens_seen");
  for (const auto& [name, seconds] : kTimeSpent) {
    if (json.contains("seconds")) state.time.*seconds = number_of(json["seconds"], name);
  }
  for (const auto& [key, text] : kTexts) state.*text = text_of(json, key);
  if (json.contains("loss_scale")) {
    if (!json["loss_scale"].is_number()) {
      fail(ExitCode::storage, "{}: loss_scale is not a number", path.string());
    }
    state.loss_scale = json["loss_scale"].get<double>();
    state.scale_streak = number("scale_streak");
  }
  const auto due = json.find("evaluation_due");
  state.evaluation_due = due != json.end() && *due == true;
  const double scale = state.loss_scale.value_or(1);
  if (!(scale >= 1 && scale <= 16777216) || state.scale_streak < 0) {
    fail(ExitCode::storage, "{}: loss_scale {}, scale_streak {} are not valid", path.string(),
         scale, state.scale_streak);
  }
  if (state.step < 0 || state.updates < 0 || state.updates > state.step || state.global_batch < 1) {
    fail(ExitCode::storage, "{}: step {}, updates {}, global batch {} are not valid", path.string(),
         state.step, state.updates, state.global_batch);
  }
  return state;
}

void load_checkpoint(Executor& executor, const std::filesystem::path& checkpoint,
                     const CheckpointState& state) {
  for (const TensorFile& file : tensor_files()) {
    if (is_optional(file)) {
      const bool saved = SafetensorsSet::holds(checkpoint, file.stem);
      if (saved != has_any(executor, file.roles)) {
        fail(ExitCode::usage, "{} was saved {} training.ema, this configuration has {}",
             checkpoint.string(), saved ? "with" : "without", saved ? "none" : "it");
      }
      if (!saved) continue;
    }
    if (!has_any(executor, file.roles) && !SafetensorsSet::holds(checkpoint, file.stem)) continue;
    restore_tensors(executor, checkpoint, file.stem, file.roles);
  }
  // Without a saved scale the initial scale of the configuration is kept.
  executor.set_progress({.updates = state.updates,
                         .loss_scale = state.loss_scale.value_or(executor.progress().loss_scale),
                         .scale_streak = state.scale_streak});
}

}  // namespace dltrain

#include "checkpoint/checkpoint_state.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/version.h"

namespace dltrain {
namespace {

// 2: `files`, times, tokens and fingerprints. 3: `samples_seen` and `cursors`.
constexpr int kStateFormat = 3;
constexpr uint64_t kMaxStateBytes = 64 << 20;   // tables may have many categories
constexpr const char* kTrainingData = "train";  // the source of data of a run

constexpr std::pair<const char*, int64_t CheckpointState::*> kNumbers[] = {
    {"step", &CheckpointState::step},
    {"updates", &CheckpointState::updates},
    {"seed", &CheckpointState::seed},
    {"global_batch_size", &CheckpointState::global_batch},
    {"train_samples", &CheckpointState::train_samples}};

constexpr std::pair<const char*, std::string CheckpointState::*> kTexts[] = {
    {"optimizer", &CheckpointState::optimizer},
    {"data_fingerprint", &CheckpointState::data_fingerprint},
    {"targets_fingerprint", &CheckpointState::targets_fingerprint},
    {"tokenizer", &CheckpointState::tokenizer},
    {"teacher", &CheckpointState::teacher},
    {"teacher_checkpoint", &CheckpointState::teacher_checkpoint},
    {"base", &CheckpointState::base},
    {"made_by", &CheckpointState::made_by}};

nlohmann::ordered_json record_json(const MetricRecord& record) {
  if (record.metric.empty()) return nullptr;
  return {{"metric", record.metric},
          {"step", record.step},
          {"value", record.value},
          {"since", record.since}};
}

// Returns an empty record if it is absent, as in checkpoints of earlier versions.
MetricRecord metric_record(const nlohmann::json& state, const char* key) {
  const nlohmann::json record = state.value(key, nlohmann::json());
  if (record.is_null()) return {};
  return {.metric = record.at("metric"),
          .step = record.at("step"),
          .value = record.at("value"),
          .since = record.at("since")};
}

}  // namespace

TrainPosition CheckpointState::position() const {
  const auto cursor = cursors.find(kTrainingData);
  return {step, samples_seen, cursor == cursors.end() ? 0 : cursor->second};
}

void CheckpointState::set_position(const TrainPosition& position) {
  step = position.step;
  samples_seen = position.samples;
  cursors = {{kTrainingData, position.cursor}};
}

std::string to_json(const CheckpointState& state, const std::vector<std::string>& files) {
  nlohmann::ordered_json json{{"format", kStateFormat}, {"dltrain", std::string(version())}};
  for (const auto& [key, number] : kNumbers) json[key] = state.*number;
  json["samples_seen"] = state.samples_seen;
  json["cursors"] = state.cursors;
  json["tokens_seen"] = state.tokens_seen;
  json["saved_at"] = state.saved_at;
  for (const auto& [name, seconds] : kTimeSpent) json["seconds"][name] = state.time.*seconds;
  json["best"] = record_json(state.best);
  json["early_stopping"] = record_json(state.early_stopping);
  json["files"] = files;
  if (!state.data.class_names.empty()) json["class_names"] = state.data.class_names;
  if (state.data.recorded()) json["data"] = parse_ordered_json(to_json(state.data));
  if (state.evaluation_due) json["evaluation_due"] = true;
  for (const auto& [key, text] : kTexts) {
    if (!(state.*text).empty()) json[key] = state.*text;
  }
  if (state.loss_scale) {
    json["loss_scale"] = *state.loss_scale;
    json["scale_streak"] = state.scale_streak;
  }
  return json_text(json, 2) + "\n";
}

CheckpointState read_state_file(const std::filesystem::path& path,
                                std::vector<std::string>& files) try {
  const auto json = parse_json(read_file(path, kMaxStateBytes, ExitCode::storage));
  CheckpointState state{.format = json.at("format")};
  if (state.format < 1 || state.format > kStateFormat) {
    fail(ExitCode::storage, "{}: format {} (dltrain {}); this program reads formats 1 to {}",
         path.string(), state.format, json.value("dltrain", ""), kStateFormat);
  }
  files = json.value("files", files);
  for (const auto& [key, number] : kNumbers) state.*number = json.at(key);
  for (const auto& [key, text] : kTexts) state.*text = json.value(key, "");
  for (const auto& [name, seconds] : kTimeSpent) {
    if (json.contains("seconds")) state.time.*seconds = json["seconds"].value(name, 0.0);
  }
  state.best = metric_record(json, "best");
  state.early_stopping = metric_record(json, "early_stopping");
  if (json.contains("data")) state.data = schema_from_json(json_text(json["data"]), path.string());
  state.data.class_names = json.value("class_names", state.data.class_names);
  state.saved_at = json.value("saved_at", 0.0);
  state.tokens_seen = json.value("tokens_seen", int64_t{0});
  state.evaluation_due = json.value("evaluation_due", false);
  if (json.contains("loss_scale")) state.loss_scale = json["loss_scale"].get<double>();
  state.scale_streak = json.value("scale_streak", int64_t{0});
  if (state.format >= 3) {
    state.samples_seen = json.at("samples_seen");
    json.at("cursors").get_to(state.cursors);
  } else {  // all batches had the same size
    const int64_t samples = state.step * state.global_batch;
    state.set_position({state.step, samples, samples});
  }
  const double scale = state.loss_scale.value_or(1);
  if (!(scale >= 1 && scale <= 16777216) || state.scale_streak < 0) {
    fail(ExitCode::storage, "{}: loss_scale {}, scale_streak {} are not valid", path.string(),
         scale, state.scale_streak);
  }
  if (state.step < 0 || state.updates < 0 || state.updates > state.step || state.global_batch < 1 ||
      state.samples_seen < 0 || state.position().cursor < 0) {
    fail(ExitCode::storage, "{}: step {}, updates {}, samples {}, global batch {} are not valid",
         path.string(), state.step, state.updates, state.samples_seen, state.global_batch);
  }
  return state;
} catch (const nlohmann::json::exception& error) {
  fail(ExitCode::storage, "{}: is not the state of a checkpoint: {}", path.string(), error.what());
}

}  // namespace dltrain

#include "checkpoint/checkpoint_state.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/version.h"

namespace dltrain {
namespace {

// 2: `files`, times, tokens and fingerprints. 3: `samples_seen` and `cursors`.
constexpr int kStateFormat = 3;
constexpr uint64_t kMaxStateBytes = 64 << 20;  // tables may have many categories
constexpr const char* kTrainingData = "train";  // the source of data of a run

constexpr std::pair<const char*, std::string CheckpointState::*> kTexts[] = {
    {"optimizer", &CheckpointState::optimizer},
    {"data_fingerprint", &CheckpointState::data_fingerprint},
    {"tokenizer", &CheckpointState::tokenizer},
    {"teacher", &CheckpointState::teacher},
    {"teacher_checkpoint", &CheckpointState::teacher_checkpoint}};

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
  nlohmann::ordered_json json{{"format", kStateFormat},
                              {"step", state.step},
                              {"updates", state.updates},
                              {"samples_seen", state.samples_seen},
                              {"cursors", state.cursors},
                              {"seed", state.seed},
                              {"global_batch_size", state.global_batch},
                              {"train_samples", state.train_samples},
                              {"best", to_json(state.best)},
                              {"early_stopping", to_json(state.early_stopping)},
                              {"dltrain", std::string(version())},
                              {"files", files},
                              {"tokens_seen", state.tokens_seen},
                              {"saved_at", state.saved_at}};
  if (!state.data.class_names.empty()) json["class_names"] = state.data.class_names;
  if (state.data.recorded()) json["data"] = nlohmann::ordered_json::parse(to_json(state.data));
  if (state.evaluation_due) json["evaluation_due"] = true;
  for (const auto& [name, seconds] : kTimeSpent) json["seconds"][name] = state.time.*seconds;
  for (const auto& [key, text] : kTexts) {
    if (!(state.*text).empty()) json[key] = state.*text;
  }
  if (state.loss_scale) {
    json["loss_scale"] = *state.loss_scale;
    json["scale_streak"] = state.scale_streak;
  }
  return json.dump(2) + "\n";
}

CheckpointState read_state_file(const std::filesystem::path& path,
                                std::vector<std::string>& files) {
  const auto json =
      nlohmann::json::parse(read_file(path, kMaxStateBytes, ExitCode::storage), nullptr, false);
  const auto number = [&](const char* key) -> int64_t {
    if (!json.is_object() || !json.contains(key) || !json[key].is_number_integer()) {
      fail(ExitCode::storage, "{}: '{}' is not an integer", path.string(), key);
    }
    return json[key].get<int64_t>();
  };
  const int64_t format = number("format");
  if (format < 1 || format > kStateFormat) {
    fail(ExitCode::storage, "{}: format {} (dltrain {}); this program reads formats 1 to {}",
         path.string(), format, text_of(json, "dltrain"), kStateFormat);
  }
  files = texts_of(json, "files", path);
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
  if (format >= 3) {
    state.samples_seen = number("samples_seen");
    const auto cursors = json.find("cursors");
    if (cursors == json.end() || !cursors->is_object()) {
      fail(ExitCode::storage, "{}: 'cursors' is not an object", path.string());
    }
    for (const auto& [source, at] : cursors->items()) {
      if (!at.is_number_unsigned()) {
        fail(ExitCode::storage, "{}: the cursor of '{}' is not valid", path.string(), source);
      }
      state.cursors[source] = at.get<int64_t>();
    }
  } else {  // all batches had the same size
    const int64_t samples = state.step * state.global_batch;
    state.set_position({state.step, samples, samples});
  }
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
  if (state.step < 0 || state.updates < 0 || state.updates > state.step ||
      state.global_batch < 1 || state.samples_seen < 0) {
    fail(ExitCode::storage, "{}: step {}, updates {}, global batch {} are not valid", path.string(),
         state.step, state.updates, state.global_batch);
  }
  return state;
}

}  // namespace dltrain

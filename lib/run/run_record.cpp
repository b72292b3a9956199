#include "run/run_record.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/encodings.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/run_lock.h"
#include "base/utf8.h"
#include "checkpoint/checkpoint_state.h"
#include "config/diagnostics.h"
#include "telemetry/json_object.h"

namespace dltrain {
namespace {

constexpr uint64_t kMostBytes = uint64_t{16} << 20;

std::string read_if_there(const std::filesystem::path& path) {
  if (!is_file(path)) return "";
  return read_file(path, kMostBytes, ExitCode::storage);
}

std::string text_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? printable(found->get<std::string>()) : "";
}
double number_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : NAN;
}

// Calls use(object) with each whole line of a file of JSON lines.
template <typename Use>
void for_each_line(const std::filesystem::path& path, Use use) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json object = try_parse_json(line);
    if (object.is_object()) use(object);
  }
}

RunAttempt attempt_of(const nlohmann::json& line) {
  RunAttempt out{.time = number_in(line, "time"),
                 .folder = text_in(line, "folder"),
                 .host = text_in(line, "host"),
                 .dltrain = text_in(line, "dltrain"),
                 .revision = text_in(line, "revision"),
                 .device = text_in(line, "device"),
                 .data = text_in(line, "data")};
  const auto whole = [&](const char* key) {
    const double number = number_in(line, key);
    return number >= 1 && number < 1e9 ? static_cast<int64_t>(number) : 1;
  };
  out.attempt = whole("attempt");
  out.ranks = whole("ranks");
  out.threads = whole("threads");
  const auto command = line.find("command");
  if (command == line.end() || !command->is_array()) return out;
  for (const nlohmann::json& word : *command) {
    if (word.is_string()) out.command.push_back(printable(word.get<std::string>()));
  }
  return out;
}

void read_summary(RunRecord& run, const nlohmann::json& summary) {
  for (const auto& [key, value] : summary.items()) {
    if (value.is_number()) run.figures[key] = value.get<double>();
    if (value.is_string()) run.texts[key] = printable(value.get<std::string>());
  }
  const double number = number_in(summary, "exit_code");
  if (!(std::abs(number) < 1e6)) {
    run.status = "broken";
    run.problem = "summary.json has no exit_code";
    return;
  }
  const int code = static_cast<int>(number);
  run.status = code == 0 ? "finished" : code == 75 ? "stopped" : fmt::format("failed ({})", code);
  if (code != 0) run.problem = text_in(summary, "message");
}

// Returns the keys of a configuration. Throws Error for a text that dump_config() did not write to
// its end.
std::vector<ConfigDifference> keys_of_experiment(const std::string& config) {
  std::vector<ConfigDifference> keys;
  try {
    keys = keys_of_dump(config);
  } catch (const ConfigError& error) {
    fail(ExitCode::storage, "config.yaml: {}", error.diagnostics().all().front().message);
  }
  for (const char* section : {"model", "data", "optimizer", "training", "evaluation"}) {
    const auto is_in = [&](const auto& key) { return key.path.starts_with(section); };
    if (std::ranges::any_of(keys, is_in)) continue;
    fail(ExitCode::storage, "config.yaml is damaged: it has no section {}", section);
  }
  return keys;
}

// Adds the numbers that the figures lack from the log, the last of each.
void add_logged(RunRecord& run) {
  std::map<std::string, double> logged;
  for_each_line(run.folder / "metrics.jsonl", [&](const nlohmann::json& line) {
    for (const auto& [key, value] : line.items()) {
      if (value.is_number()) logged[key == "step" ? "steps" : key] = value.get<double>();
    }
  });
  const auto end = logged.extract("time");
  if (end && !run.attempts.empty() && end.mapped() >= run.attempts.back().time) {
    logged["seconds"] = end.mapped() - run.attempts.back().time;
  }
  run.figures.merge(logged);
}

}  // namespace

std::string RunAttempt::command_text() const {
  std::string out = "dltrain";
  for (const std::string& word : command) out += " " + quoted_for_shell(word);
  return out;
}

void write_attempt(const std::filesystem::path& run, const RunAttempt& a) {
  JsonObject line;
  line.add("attempt", a.attempt).add("time", a.time).add("command", a.command);
  line.add("folder", a.folder).add("host", a.host).add("dltrain", a.dltrain);
  line.add("revision", a.revision).add("device", a.device).add("data", a.data);
  line.add("ranks", a.ranks).add("threads", a.threads);
  FileWriter file(run / kAttemptsFile, /*append=*/a.attempt > 1);
  file.write(line.text() + "\n");
  file.close();
}

std::filesystem::path named_folder(const std::filesystem::path& run) {
  std::error_code ignored;
  const auto out = std::filesystem::absolute(run / "", ignored).lexically_normal().parent_path();
  return out.filename() == "run" ? out.parent_path() : out;
}

RunRecord read_run(const std::filesystem::path& folder) {
  RunRecord out{
      .folder = folder, .name = named_folder(folder).filename().string(), .status = "interrupted"};
  try {
    out.config = read_if_there(folder / "config.yaml");
    for_each_line(folder / kAttemptsFile,
                  [&](const nlohmann::json& line) { out.attempts.push_back(attempt_of(line)); });
    const std::string text = read_if_there(folder / "summary.json");
    const nlohmann::json summary = try_parse_json(text);
    const bool current = summary.is_object() &&
                         (out.attempts.empty() ||
                          !(number_in(summary, "attempt") < double(out.attempts.back().attempt)));
    if (is_locked(folder)) {
      out.status = "running";
    } else if (current) {
      read_summary(out, summary);
    } else if (!text.empty() && !summary.is_object()) {
      out.status = "broken";
      out.problem = "summary.json is no JSON object";
    }
    if (!out.figures.contains("steps") || !out.figures.contains("loss")) add_logged(out);
    if (out.config.empty()) {
      out.status = "broken";
      out.problem = "config.yaml is missing or empty";
    } else if (out.status != "broken") {
      keys_of_experiment(out.config);  // throws
    }
  } catch (const std::exception& error) {
    out.status = "broken";
    out.problem = error.what();
  }
  return out;
}

double whole_seconds(const std::map<std::string, double>& figures) {
  const auto found = [&](const std::string& key) {
    const auto at = figures.find(key);
    return at == figures.end() ? NAN : at->second;
  };
  if (!figures.contains("training_seconds")) return found("attempt") == 1 ? found("seconds") : NAN;
  double sum = 0;
  for (const TimeSpentRow& row : kTimeSpent) {
    const double seconds = found(fmt::format("{}_seconds", row.name));
    if (!std::isnan(seconds)) sum += seconds;
  }
  return sum;
}

std::vector<RunPoint> read_curve(const std::filesystem::path& run) {
  std::vector<RunPoint> out;
  for_each_line(run / "metrics.jsonl", [&](const nlohmann::json& line) {
    const double step = number_in(line, "step");
    if (!line.contains("loss") || !(std::abs(step) < 1e15)) return;
    out.push_back(
        {static_cast<int64_t>(step), number_in(line, "loss"), number_in(line, "grad_norm")});
  });
  return out;
}

std::vector<std::filesystem::path> find_runs(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  const auto look = [&](const auto& self, const std::filesystem::path& at, int depth) -> void {
    std::error_code error;
    // A trial may also hold a reproduction of its run.
    if (depth > 0 && std::filesystem::is_regular_file(at / "trial.json", error)) {
      return self(self, at / "run", depth - 1);
    }
    for (const char* name : {"metrics.jsonl", kAttemptsFile, "summary.json"}) {
      if (!std::filesystem::is_regular_file(at / name, error)) continue;
      out.push_back(at);
      return;
    }
    if (depth == 0) return;
    for (const auto& entry : std::filesystem::directory_iterator(at, error)) {
      if (entry.is_directory(error)) {
        self(self, entry.path(), entry.is_symlink(error) ? 0 : depth - 1);
      }
    }
  };
  look(look, folder, 4);
  std::ranges::sort(out);
  return out;
}

std::string plain_value(const std::string& yaml) {
  const nlohmann::json text = try_parse_json(yaml);
  std::string out = text.is_string() ? text.get<std::string>() : yaml;
  for (size_t at = 0; (at = out.find("$${", at)) != std::string::npos; at += 2) out.erase(at, 1);
  return out;
}

std::map<std::string, std::string> settings_of(const RunRecord& run, bool plain) {
  std::map<std::string, std::string> out;
  try {
    for (const ConfigDifference& key : keys_of_experiment(run.config)) {
      out[printable(key.path)] = plain ? printable(plain_value(key.after)) : key.after;
    }
  } catch (const std::exception&) {
    return {};
  }
  return out;
}

std::string RunRecord::value(const std::string& key) const {
  if (key == "run") return printable(folder.string());
  if (key == "status") return status;
  if (key == "time") {
    const double seconds = whole_seconds(figures);
    return std::isnan(seconds) ? "" : fmt::format("{:.6g}", seconds);
  }
  if (const auto number = figures.find(key); number != figures.end()) {
    return fmt::format("{:.6g}", number->second);
  }
  if (const auto text = texts.find(key); text != texts.end()) return text->second;
  const auto settings = settings_of(*this);
  const auto found = settings.find(key);
  return found == settings.end() ? "" : found->second;
}

}  // namespace dltrain

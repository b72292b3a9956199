#include "sweep/trials.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/owned_files.h"
#include "base/run_lock.h"
#include "config/diff.h"
#include "config/dump.h"
#include "sweep/search.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kConfigFile = "config.yaml";
constexpr uint64_t kMostBytesOfTrial = 1 << 20;

// The rounds of successive halving: r times fewer trials train r times as many steps.
std::vector<SweepRound> rounds_of(const Experiment& experiment) {
  const SweepConfig& sweep = *experiment.sweep;
  const int64_t count = trial_count(sweep);
  std::vector<SweepRound> out{{.share = 1, .trials = count}};
  if (sweep.search != SearchKind::halving) return out;
  const auto& steps = experiment.training.max_steps;
  if (sweep.min_steps && !steps) {
    fail_at(sweep, "min_steps", "sweep.min_steps needs training.max_steps");
  }
  const auto factor = static_cast<double>(sweep.reduction);
  double share = 1;
  for (int64_t left = count; left >= sweep.reduction; left /= sweep.reduction) {
    const double next = share / factor;
    const double least = sweep.min_steps ? static_cast<double>(*sweep.min_steps) : 1;
    if (steps && next * static_cast<double>(*steps) < least) break;
    share = next;
    out.insert(out.begin(), {.share = share, .trials = 0});
  }
  int64_t trials = count;
  for (SweepRound& round : out) {
    round.trials = trials;
    trials = std::max<int64_t>(1, trials / sweep.reduction);
  }
  return out;
}

// Returns nothing for what was not written by write_result().
std::optional<TrialResult> read_result(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto code = json.find("exit_code"), message = json.find("message"),
             figures = json.find("figures");
  if (code == json.end() || !code->is_number_integer() || message == json.end() ||
      !message->is_string() || figures == json.end() || !figures->is_object()) {
    return std::nullopt;
  }
  const auto timed_out = json.find("timed_out");
  TrialResult out{.exit_code = code->get<int>(),
                  .message = message->get<std::string>(),
                  .timed_out = timed_out != json.end() && *timed_out == true};
  for (const auto& [key, value] : figures->items()) {
    if (value.is_number()) out.figures[key] = value.get<double>();
  }
  return out;
}

// The values with which a run was trained; empty for what store() did not write.
std::vector<std::string> read_values(const Json& json, const SweepConfig& sweep) {
  std::vector<std::string> out;
  const auto settings = json.find("settings");
  for (const SweepParameter& parameter : sweep.parameters) {
    if (settings == json.end()) return {};
    const auto value = settings->find(parameter.key);
    if (value == settings->end() || !value->is_string()) return {};
    out.push_back(value->get<std::string>());
  }
  return out;
}

Json write_result(const TrialResult& result) {
  Json figures = Json::object();
  for (const auto& [key, value] : result.figures) {
    if (std::isfinite(value)) figures[key] = value;
  }
  return {{"exit_code", result.exit_code},
          {"timed_out", result.timed_out},
          {"message", result.message},
          {"figures", figures}};
}

}  // namespace

double TrialResult::value(const std::string& metric) const {
  const auto found = figures.find(metric);
  return has_trained() && found != figures.end() ? found->second : NAN;
}

Trials::Trials(const Experiment& experiment, fs::path folder, bool writable)
    : sweep_(*experiment.sweep), folder_(std::move(folder)), rounds_(rounds_of(experiment)) {
  const bool evaluates = experiment.data.eval != nullptr || experiment.data.eval_fraction;
  metric_ = sweep_.metric.value_or(evaluates ? "eval_loss" : "loss");
  smaller_ = sweep_.mode.value_or(default_mode(metric_)) == MetricMode::min;
  if (sweep_.search != SearchKind::grid && sweep_.search != SearchKind::halving) {
    rounds_[0].trials = std::max(rounds_[0].trials, stored_trials());
  }
  values_.resize(static_cast<size_t>(rounds_[0].trials));
  results_.resize(values_.size());
  for (auto& of_trial : results_) {
    of_trial.resize(rounds_.size() * static_cast<size_t>(sweep_.repeats));
  }
  const std::string config = dump_config(experiment);
  check_own();
  if (writable) make_directories(folder_);
  const auto lock = writable ? lock_folder() : nullptr;
  if (!lists_file(folder_, kRankingFile)) {
    if (writable) mark_folder(folder_);
  } else if (fs::exists(folder_ / kConfigFile)) {
    compare(read_file(folder_ / kConfigFile, uint64_t{64} << 20, ExitCode::storage), config,
            writable);
  }
  if (writable) {
    std::vector<std::string> names{kConfigFile, kRankingFile};
    for (int64_t trial = 0; trial < count(); ++trial) {
      for (int64_t repeat = 0; repeat < sweep_.repeats; ++repeat) {
        names.push_back(folder_of(trial, repeat).filename().string());
      }
    }
    claim_files(folder_, names);
    write_file_atomically(folder_ / kConfigFile, config);
  }
  refresh();
}

// The number of trials of which the folder has results, from the first on.
int64_t Trials::stored_trials() const {
  if (!lists_file(folder_, kRankingFile)) return 0;
  int64_t count = 0;
  std::error_code ignored;
  while (fs::exists(folder_of(count, 0) / "trial.json", ignored)) ++count;
  return count;
}

// Refuses to mix the results of two sweeps.
void Trials::compare(const std::string& before, const std::string& now, bool trains) const {
  const bool learns = sweep_.search == SearchKind::tpe;
  const bool ranks = learns || sweep_.search == SearchKind::halving;
  const auto is_order = [](const std::string& path) {
    return path == "sweep.metric" || path == "sweep.mode";
  };
  const auto harmless = [&](const std::string& path) {
    if (path == "sweep.trials") return sweep_.search != SearchKind::halving;
    if (path == "sweep.parallel") return !learns;
    if (is_order(path)) return !ranks || !trains;
    if (path == "sweep.repeats") return !ranks;
    return path.starts_with("sweep.roles") || path.starts_with("sweep.gpus") ||
           path.starts_with("experiment");
  };
  std::vector<ConfigDifference> differences = diff_dumps(before, now);
  std::erase_if(differences, [&](const ConfigDifference& d) { return harmless(d.path); });
  std::error_code ignored;
  if (differences.empty() || !fs::exists(folder_of(0, 0), ignored)) return;  // nothing was trained
  if (differences.size() == 1 && differences[0].path == "sweep.trials") {
    fail(ExitCode::usage,
         "{}: halving cannot be extended, because its rounds depend on the number of trials ({} "
         "-> {}); choose another folder with --output-dir",
         folder_.string(), differences[0].before, differences[0].after);
  }
  if (std::ranges::all_of(differences, [&](const auto& d) { return is_order(d.path); })) {
    fail(ExitCode::usage,
         "{}: the search chooses trials by sweep.metric, which cannot change; --rank ranks them by "
         "another one. The differences:\n{}",
         folder_.string(), describe_differences(differences));
  }
  fail(ExitCode::usage,
       "{} holds another sweep; choose another folder with --output-dir, or remove it. The "
       "differences:\n{}",
       folder_.string(), describe_differences(differences));
}

// Refuses a folder with entries that is none of a sweep.
void Trials::check_own() const {
  if (lists_file(folder_, kRankingFile)) return;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    // Another process may be creating the folder now.
    const auto name = entry.path().filename().string();
    if (name == kLockFile || name.starts_with(kTemporaryPrefix)) continue;
    if (name == kMarkerFile || lists_file(folder_, kRankingFile)) continue;
    fail(ExitCode::usage,
         "{} is not empty and not the folder of a sweep; choose another one with --output-dir",
         folder_.string());
  }
}

std::unique_ptr<RunLock> Trials::lock_folder() const {
  for (int tries = 0;; ++tries) {
    try {
      return std::make_unique<RunLock>(folder_);
    } catch (const Error& error) {
      if (error.code() != ExitCode::usage || tries == 100) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void Trials::write_ranking(const std::string& csv) const {
  const auto lock = lock_folder();
  write_file_atomically(folder_ / kRankingFile, csv);
}

bool Trials::any_stored() const {
  return std::ranges::any_of(results_, [](const auto& of_trial) {
    return std::ranges::any_of(of_trial, [](const auto& result) { return result.has_value(); });
  });
}

fs::path Trials::folder_of(int64_t trial, int64_t repeat) const {
  return folder_ /
         (fmt::format("trial-{:04}", trial) + (repeat > 0 ? fmt::format("-{}", repeat + 1) : ""));
}

std::optional<TrialResult>& Trials::slot(const SweepJob& job) {
  return results_[static_cast<size_t>(job.trial)]
                 [static_cast<size_t>(job.repeat) * rounds_.size() + job.round];
}
const std::optional<TrialResult>& Trials::result(const SweepJob& job) const {
  return const_cast<Trials*>(this)->slot(job);
}

std::optional<std::vector<std::string>> Trials::values(int64_t trial) {
  std::vector<std::string>& out = values_[static_cast<size_t>(trial)];
  if (out.empty()) {
    std::vector<Observation> earlier;
    for (int64_t i = 0; i < needed_trials(sweep_, trial); ++i) {
      const double result = score(i, 0);
      if (std::isnan(result)) return std::nullopt;
      earlier.push_back({.values = values_[static_cast<size_t>(i)], .score = result});
    }
    out = values_of_trial(sweep_, trial, earlier);
  }
  return out;
}

void Trials::store(const SweepJob& job, TrialResult result) {
  slot(job) = std::move(result);
  Json settings = Json::object(), rounds = Json::array();
  const auto values_now = values(job.trial);
  for (size_t p = 0; p < sweep_.parameters.size(); ++p) {
    settings[sweep_.parameters[p].key] = (*values_now)[p];
  }
  for (size_t round = 0; round < rounds_.size(); ++round) {
    const auto& stored = this->result({job.trial, job.repeat, round});
    if (!stored) break;
    rounds.push_back(write_result(*stored));
  }
  const Json all{{"trial", job.trial},
                 {"repeat", job.repeat},
                 {"settings", std::move(settings)},
                 {"rounds", std::move(rounds)}};
  write_file_atomically(folder_of(job.trial, job.repeat) / "trial.json", json_text(all, 1) + "\n");
}

void Trials::refresh() {
  for (int64_t trial = 0; trial < count(); ++trial) {
    for (int64_t repeat = 0; repeat < sweep_.repeats; ++repeat) refresh(trial, repeat);
  }
}

void Trials::refresh(int64_t trial, int64_t repeat) {
  if (result({trial, repeat, rounds_.size() - 1})) return;
  const fs::path file = folder_of(trial, repeat) / "trial.json";
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return;
  const std::string text = read_file(file, kMostBytesOfTrial, ExitCode::storage);
  const Json json = try_parse_json(text);
  const auto stored = json.find("rounds");
  std::vector<std::string> values = read_values(json, sweep_);
  if (stored == json.end() || !stored->is_array() || values.empty()) return;
  // The search may give others now: a trial before it that had failed is trained again.
  values_[static_cast<size_t>(trial)] = std::move(values);
  for (size_t round = 0; round < std::min(rounds_.size(), stored->size()); ++round) {
    const SweepJob job{trial, repeat, round};
    std::optional<TrialResult> read = read_result((*stored)[round]);
    if (!read || !read->is_final()) return;
    if (!result(job)) slot(job) = std::move(read);
  }
}

double Trials::score(int64_t trial, size_t round) const {
  double sum = 0;
  for (int64_t repeat = 0; repeat < sweep_.repeats; ++repeat) {
    const auto& of_run = result({trial, repeat, round});
    if (!of_run) return NAN;
    const double value = of_run->value(metric_);
    sum += std::isfinite(value) ? (smaller_ ? value : -value) : INFINITY;
  }
  return sum / static_cast<double>(sweep_.repeats);
}

std::vector<int64_t> Trials::members(size_t round) const {
  std::vector<int64_t> out;
  if (round == 0) {
    for (int64_t trial = 0; trial < count(); ++trial) out.push_back(trial);
    return out;
  }
  out = members(round - 1);
  for (const int64_t trial : out) {
    if (std::isnan(score(trial, round - 1))) return {};
  }
  // Trials that have failed do not go on.
  std::erase_if(out, [&](int64_t trial) { return std::isinf(score(trial, round - 1)); });
  std::ranges::stable_sort(out, {}, [&](int64_t trial) { return score(trial, round - 1); });
  out.resize(std::min(out.size(), static_cast<size_t>(rounds_[round].trials)));
  std::ranges::sort(out);
  return out;
}

bool Trials::done() {
  for (size_t round = 0; round < rounds_.size(); ++round) {
    for (const int64_t trial : members(round)) {
      if (std::isnan(score(trial, round))) return false;
    }
  }
  return true;
}

}  // namespace dltrain

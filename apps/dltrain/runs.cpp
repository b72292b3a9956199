// dltrain runs list|show: the runs of a folder as a table, and one run.
#include <algorithm>
#include <cmath>
#include <compare>
#include <ctime>
#include <set>

#include <nlohmann/json.hpp>

#include "base/encodings.h"
#include "base/json.h"
#include "base/owned_files.h"
#include "base/parse_number.h"
#include "base/utf8.h"
#include "config/suggest.h"
#include "dltrain/commands.h"
#include "sweep/trials.h"
#include "telemetry/console.h"
#include "telemetry/json_object.h"
#include "telemetry/plot.h"
#include "telemetry/progress.h"

namespace dltrain {
namespace {

struct ListOptions {
  std::vector<std::string> folders, filters, columns;
  std::string sort;
  bool json = false;
};

// The columns that the table always has.
const std::vector<std::string>& first_columns() {
  static const std::vector<std::string> out{"run", "status", "steps", "time"};
  return out;
}

std::string without_blanks(std::string text) {
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

// A condition of --filter: KEY=VALUE, KEY!=VALUE, KEY<NUMBER (also <=, > and >=), tag=WORD.
class Filter {
 public:
  explicit Filter(const std::string& text) {
    const size_t at = text.find_first_of("=<>!"), next = text.find('=', at + 1);
    const size_t value = at == text.npos ? text.size() : at + (next == at + 1 ? 2 : 1);
    if (at == 0 || value >= text.size() || text.substr(at, value - at) == "!" ||
        text.find_first_of("=<>!", value) == value) {
      fail(ExitCode::usage,
           "--filter '{}' is not KEY=VALUE, KEY!=VALUE, or KEY<NUMBER with <, <=, > or >=", text);
    }
    relation_ = text.substr(at, value - at);
    key_ = without_blanks(text.substr(0, at)), wanted_ = without_blanks(text.substr(value));
    const bool compares = relation_[0] == '<' || relation_[0] == '>';
    static const std::vector<std::string> kStatuses{"running", "finished",    "stopped",
                                                    "failed",  "interrupted", "broken"};
    const std::string word = wanted_.substr(0, wanted_.find(' '));  // of "failed (4)"
    if (key_ == "status" && (compares || !contains(kStatuses, word))) {
      fail(ExitCode::usage, "--filter '{}': status is = or != one of {}", text,
           join_names(kStatuses));
    }
    if (compares && !parse_number<double>(wanted_)) {
      fail(ExitCode::usage, "--filter '{}': '{}' is no number", text, wanted_);
    }
  }
  std::string& key() { return key_; }

  bool accepts(const RunRecord& run) const {
    if (relation_ == "!=") return !equals(run);
    if (relation_[0] == '=') return equals(run);
    const auto a = parse_number<double>(run.value(key_)), b = parse_number<double>(wanted_);
    if (!a) return false;
    return (relation_[0] == '<' ? *a < *b : *a > *b) || (relation_.size() == 2 && *a == *b);
  }

 private:
  bool equals(const RunRecord& run) const {
    if (key_ == "tag") {
      const auto settings = settings_of(run);
      return std::ranges::any_of(settings, [&](const auto& setting) {
        return setting.first.starts_with("experiment.tags[") && setting.second == wanted_;
      });
    }
    const std::string found = run.value(key_);
    if (key_ == "status" && found.starts_with(wanted_ + " (")) return true;  // failed (4)
    const auto a = parse_number<double>(found), b = parse_number<double>(wanted_);
    return found == wanted_ || (a && b && *a == *b);
  }

  std::string key_, relation_, wanted_;
};

// The results that are columns unless --columns says otherwise.
std::vector<std::string> result_columns(const std::vector<RunRecord>& runs) {
  std::set<std::string> best, evaluated;
  for (const RunRecord& run : runs) {
    for (const auto& [key, value] : run.figures) {
      if (key.starts_with("best_eval_")) best.insert(key);
      if (key == "eval_loss" || key == "eval_accuracy") evaluated.insert(key);
    }
  }
  std::vector<std::string> out{"loss"};
  out.insert(out.end(), evaluated.begin(), evaluated.end());
  for (const std::string& key : best) {
    if (!evaluated.contains(key.substr(5))) out.push_back(key);
  }
  return out;
}

// The settings in which the runs differ: the four with the most values, those of learning first.
std::vector<std::string> varied_settings(const std::vector<RunRecord>& runs) {
  std::map<std::string, std::set<std::string>> values;
  for (const RunRecord& run : runs) {
    for (const auto& [key, value] : settings_of(run)) {
      if (key != "name" && !key.starts_with("experiment")) values[key].insert(value);
    }
  }
  std::vector<std::string> out;
  for (const auto& [key, different] : values) {
    if (different.size() > 1) out.push_back(key);
  }
  static const std::set<std::string> kLearning{"loss",      "lr_scheduler", "model",   "optimizer",
                                               "precision", "seed",         "training"};
  std::ranges::stable_partition(
      out, [](const std::string& key) { return kLearning.contains(key.substr(0, key.find('.'))); });
  std::ranges::stable_sort(out, std::greater(),
                           [&](const std::string& key) { return values.at(key).size(); });
  out.resize(std::min<size_t>(out.size(), 4));
  return out;
}

void sort_runs(std::vector<RunRecord>& runs, const std::string& key, bool falling) {
  std::vector<std::pair<std::string, size_t>> order;
  for (size_t i = 0; i < runs.size(); ++i) order.emplace_back(runs[i].value(key), i);
  // Numbers before texts, and runs without the key last.
  std::ranges::stable_sort(order, [&](const auto& a, const auto& b) {
    if (a.first.empty() || b.first.empty()) return !a.first.empty() && b.first.empty();
    const auto x = parse_number<double>(a.first), y = parse_number<double>(b.first);
    if (x.has_value() != y.has_value()) return x.has_value();
    const std::partial_ordering sign = x ? *x <=> *y : a.first <=> b.first;
    return falling ? sign > 0 : sign < 0;
  });
  std::vector<RunRecord> sorted;
  for (const auto& [value, i] : order) sorted.push_back(std::move(runs[i]));
  runs = std::move(sorted);
}

// "learning_rate" of "optimizer.learning_rate", if no other column has that name.
std::string title_of(const std::string& key, const std::vector<std::string>& all) {
  const std::string last = key.substr(key.rfind('.') + 1);
  const auto same = std::ranges::count_if(
      all, [&](const std::string& other) { return other.substr(other.rfind('.') + 1) == last; });
  return same == 1 ? last : key;
}

void print_json(const std::vector<RunRecord>& runs) {
  using Json = nlohmann::ordered_json;
  for (const RunRecord& run : runs) {
    JsonObject figures;
    for (const auto& [key, value] : run.figures) figures.add(key, value);
    Json settings = Json::object();
    for (const auto& [key, yaml] : settings_of(run, /*plain=*/false)) {
      const Json value = try_parse_ordered_json(yaml);
      const bool text = value.is_discarded() || value.is_string();
      settings[key] = text ? Json(printable(plain_value(yaml))) : value;
    }
    const Json line{{"folder", run.folder.string()},
                    {"status", run.status},
                    {"problem", run.problem},
                    {"results", parse_ordered_json(figures.text())},
                    {"settings", std::move(settings)}};
    fmt::print("{}\n", json_text(line));
  }
}

// Completes a key that is given by its last parts, "learning_rate", if one setting ends with them.
void find_key(const std::vector<RunRecord>& runs, const std::string& flag, std::string& key) {
  key = without_blanks(key);
  const auto has = [&](const RunRecord& run) { return !run.value(key).empty(); };
  if (runs.empty() || contains(first_columns(), key) || std::ranges::any_of(runs, has)) return;
  std::set<std::string> found, known(first_columns().begin(), first_columns().end());
  for (const RunRecord& run : runs) {
    for (const auto& [name, value] : run.figures) known.insert(name);
    for (const auto& [name, value] : settings_of(run)) {
      if (name.ends_with("." + key)) found.insert(name);
      known.insert({name, name.substr(name.rfind('.') + 1)});
    }
  }
  if (found.size() == 1) {
    key = *found.begin();
    return;
  }
  if (found.empty()) found.insert(nearest_name(key, std::vector(known.begin(), known.end())));
  fail(ExitCode::usage, "{}: no run has a result or setting {}{}", flag, key,
       found.contains("") ? "" : fmt::format("; did you mean {}?", fmt::join(found, " or ")));
}

ExitCode list_runs(ListOptions options) {
  std::vector<RunRecord> runs = read_runs(
      options.folders.empty() ? std::vector<std::string>{"runs"} : options.folders, false);
  const size_t found = runs.size();
  for (std::string& column : options.columns) find_key(runs, "--columns", column);
  const bool falling = options.sort.starts_with("-");
  std::string by = options.sort.substr(falling ? 1 : 0);
  if (!options.sort.empty()) find_key(runs, "--sort", by);
  for (const std::string& text : options.filters) {
    Filter filter(text);
    if (filter.key() != "tag") find_key(runs, "--filter " + text, filter.key());
    std::erase_if(runs, [&](const RunRecord& run) { return !filter.accepts(run); });
  }
  if (!by.empty()) sort_runs(runs, by, falling);
  if (options.json) {
    print_json(runs);
    return ExitCode::ok;
  }
  if (runs.empty()) {
    fmt::print("no runs{}\n", found > 0 ? fmt::format(" of {} pass the filter", found) : "");
    return ExitCode::ok;
  }
  std::vector<std::string> columns;
  for (const std::string& column : options.columns) {
    if (!contains(first_columns(), column) && !contains(columns, column)) columns.push_back(column);
  }
  if (options.columns.empty()) {
    columns = result_columns(runs);
    std::ranges::copy(varied_settings(runs), std::back_inserter(columns));
  }
  std::vector<std::vector<std::string>> rows{first_columns()};
  for (const std::string& column : columns) rows[0].push_back(title_of(column, columns));
  for (const RunRecord& run : runs) {
    const double seconds = whole_seconds(run.figures);
    auto& row = rows.emplace_back();
    row = {printable(run.folder.string()), run.status, run.value("steps"),
           std::isnan(seconds) ? "" : format_time(seconds)};
    for (const std::string& column : columns) row.push_back(run.value(column));
  }
  fmt::print("{}", aligned(rows, /*left=*/2));  // folder and status
  for (const RunRecord& run : runs) {
    if (run.status == "broken") {
      fmt::print("{}: {}\n", printable(run.folder.string()), printable(run.problem));
    }
  }
  return ExitCode::ok;
}

std::string date_text(double seconds) {
  if (!(seconds > 0 && seconds < 1e11)) return "at an unknown time";
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

ExitCode show_run(const std::string& folder) {
  const RunRecord run = read_run(run_folder_given(folder));
  fmt::print("{}: {}{}\n", printable(run.folder.string()), run.status,
             run.problem.empty() ? "" : ": " + printable(run.problem));
  for (const auto& [key, value] : settings_of(run)) {
    if (key.starts_with("experiment.") && !value.empty() && value != "[]") {
      fmt::print("  {}: {}\n", key.substr(key.find('.') + 1), value);
    }
  }
  for (const RunAttempt& a : run.attempts) {
    fmt::print("  attempt {}: {}, dltrain {} ({}), {}, {} rank{}, {} thread{}, on {}\n    {}$ {}\n",
               a.attempt, date_text(a.time), a.dltrain, a.revision, a.device, a.ranks,
               a.ranks == 1 ? "" : "s", a.threads, a.threads == 1 ? "" : "s", a.host, a.folder,
               a.command_text());
  }
  for (const auto& [key, value] : run.figures) {
    const bool result = key.find("loss") != std::string::npos || key.starts_with("eval_") ||
                        key.starts_with("best_") || key == "steps" || key == "accuracy" ||
                        key == "peak_rss_mib" || key == "step_ms_median" || key == "seconds";
    if (result && key != "loss_scale") fmt::print("  {:<20} {:.6g}\n", key, value);
  }
  std::vector<double> losses;
  for (const RunPoint& point : read_curve(run.folder)) losses.push_back(point.loss);
  const std::string curve = plot(losses, {.utf8 = console().utf8()});
  if (!curve.empty()) fmt::print("loss:\n{}\n", curve);
  return run.status == "broken" ? ExitCode::storage : ExitCode::ok;
}

CommandBody add_runs_list(CLI::App& command) {
  auto options = std::make_shared<ListOptions>();
  command.add_option("FOLDER", options->folders, "Folders of runs (default: runs)");
  add_text(command, "--sort", options->sort,
           "Order by this column, result or setting, such as time, eval_loss or "
           "optimizer.learning_rate; -KEY: the largest first");
  command.add_option("--filter", options->filters,
                     "Only runs with KEY=VALUE, KEY!=VALUE, or KEY<NUMBER (also <=, >, >=), such "
                     "as status=failed, 'time>60' or tag=WORD; may be repeated");
  command.add_option("--columns", options->columns, "Results and settings to show, with commas")
      ->delimiter(',');
  command.add_flag("--json", options->json, "One JSON object a run instead of the table");
  return [options] { return list_runs(*options); };
}

CommandBody add_runs_show(CLI::App& command) {
  auto folder = std::make_shared<std::string>();
  command.add_option("RUN", *folder, "The run folder")->required();
  return [folder] { return show_run(*folder); };
}

}  // namespace

std::filesystem::path run_folder_given(const std::string& folder) {
  std::error_code ignored;
  for (const std::filesystem::path& path :
       {std::filesystem::path(folder), "runs" / std::filesystem::path(folder)}) {
    if (!std::filesystem::exists(path / "config.yaml", ignored)) continue;
    refuse_sweep(path);
    return path;
  }
  fail(ExitCode::storage, "{} is no run folder: it has no config.yaml", folder);
}

bool is_sweep(const std::filesystem::path& folder) {
  return lists_file(folder, kRankingFile);
}

void refuse_sweep(const std::filesystem::path& folder) {
  if (!is_sweep(folder)) return;
  fail(ExitCode::storage,
       "{} is the folder of a sweep, not of a run: `dltrain sweep {} --rank` ranks its trials, "
       "whose runs are {}",
       folder.string(), quoted_for_shell((folder / "config.yaml").string()),
       (folder / "trial-*" / "run").string());
}

std::vector<RunRecord> read_runs(const std::vector<std::string>& folders, bool required) {
  std::vector<RunRecord> out;
  std::set<std::filesystem::path> seen;  // without links
  std::error_code ignored;
  for (const std::string& folder : folders) {
    if (!std::filesystem::is_directory(folder)) {
      fail(ExitCode::storage, "{} {}; give the folder that holds the runs", folder,
           std::filesystem::exists(folder) ? "is not a folder" : "does not exist");
    }
    const auto found = find_runs(folder);
    if (required && found.empty()) fail(ExitCode::storage, "{} has no runs", folder);
    for (const auto& run : found) {
      if (seen.insert(std::filesystem::canonical(run, ignored)).second) {
        out.push_back(read_run(run));
      }
    }
  }
  return out;
}

CommandBody add_runs(CLI::App& command) {
  return add_parts(
      command,
      {{"list", "The runs of a folder, with results and what they differ in", add_runs_list},
       {"show", "One run: when, where, with which command, results, curve", add_runs_show},
       {"diff", "The settings in which two runs differ, and where their losses part",
        add_runs_diff},
       {"reproduce", "Repeat a run, and tell whether its bits are the same", add_runs_reproduce}});
}

}  // namespace dltrain

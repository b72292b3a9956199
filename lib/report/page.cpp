#include "report/page.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "base/encodings.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "base/version.h"
#include "report/curves.h"
#include "report/model_data.h"

namespace dltrain {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::string_view kGenerator = R"(<meta name="generator" content="dltrain report">)";
constexpr uint64_t kMostBytes = uint64_t{4} << 20;
constexpr size_t kMostRows = 64;  // of predictions and of generated texts

Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  return whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

Json curve_json(const CurveTable& all, size_t points) {
  const CurveTable table = thinned(all, points);
  Json columns = Json::object();
  for (const auto& [key, column] : table.columns) {
    Json values = Json::array();
    for (const double value : column) values.push_back(number(value));
    columns[printable(key)] = std::move(values);
  }
  const auto& time = all.column("time");
  return {{"count", all.rows},
          {"kept", table.rows},
          {"start", time.empty() ? Json(0) : number(time.front())},
          {"columns", std::move(columns)}};
}

// The object in a file, or null.
Json object_in(const fs::path& path) {
  if (!is_file(path)) return nullptr;
  try {
    Json out = try_parse_ordered_json(read_file(path, kMostBytes, ExitCode::storage));
    return out.is_object() ? out : Json(nullptr);
  } catch (const Error&) {
    return nullptr;
  }
}

// The last objects of a file of JSON lines.
Json last_rows(const fs::path& path) {
  Json out = Json::array();
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    Json row = try_parse_ordered_json(line);
    if (!row.is_object()) continue;
    out.push_back(std::move(row));
    if (out.size() > kMostRows) out.erase(out.begin());
  }
  return out;
}

bool has_scores(const Json& row) {
  for (const char* key : {"precision", "recall", "f1", "support"}) {
    if (!row.contains(key) || !row[key].is_number()) return false;
  }
  return row.contains("class") && row["class"].is_string();
}

// classes.json if it has the form that evaluations write, else null.
Json classes_of(const fs::path& run) {
  Json out = object_in(run / "classes.json");
  if (!out.is_object() || !out.contains("classes") || !out["classes"].is_array()) return nullptr;
  for (const Json& row : out["classes"]) {
    if (!row.is_object() || !has_scores(row)) return nullptr;
  }
  if (!out.contains("confusion")) return out;
  const auto is_row = [&](const Json& row) {
    return row.is_array() && row.size() == out["confusion"][0].size() &&
           std::ranges::all_of(row, [](const Json& n) { return n.is_number(); });
  };
  const Json& matrix = out["confusion"];
  const bool whole = matrix.is_array() && !matrix.empty() &&
                     matrix.size() == out["classes"].size() && std::ranges::all_of(matrix, is_row);
  if (!whole) out.erase("confusion");
  return out;
}

// The predictions of the last evaluation, or null.
Json predictions_of(const fs::path& run) {
  fs::path newest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run / "predictions", error)) {
    if (entry.path().extension() == ".jsonl" && entry.path() > newest) newest = entry.path();
  }
  if (newest.empty()) return nullptr;
  Json rows = last_rows(newest);
  if (rows.empty()) return nullptr;
  return {{"rows", std::move(rows)}, {"images", Json::array()}};
}

Json texts_of(const fs::path& run) {
  Json out = Json::array();
  for (const Json& row : last_rows(run / "samples.jsonl")) {
    Json text = Json::object();
    for (const char* key : {"step", "prompt", "text"}) {
      if (row.contains(key) && (row[key].is_string() || row[key].is_number())) {
        text[key] = row[key];
      }
    }
    out.push_back(std::move(text));
  }
  return out;
}

// The picture that `dltrain profile` has drawn, as a data URI, or null. A page runs no scripts of
// it.
Json roofline_of(const fs::path& run) {
  const fs::path file = run / "roofline.svg";
  if (!is_file(file)) return nullptr;
  try {
    return "data:image/svg+xml;base64," + base64(read_file(file, kMostBytes, ExitCode::storage));
  } catch (const Error&) {
    return nullptr;
  }
}

Json attempts_of(const RunRecord& run) {
  Json out = Json::array();
  for (const RunAttempt& a : run.attempts) {
    out.push_back({{"attempt", a.attempt},
                   {"time", number(a.time)},
                   {"command", a.command_text()},
                   {"host", a.host},
                   {"device", a.device},
                   {"revision", a.revision},
                   {"ranks", a.ranks},
                   {"threads", a.threads}});
  }
  return out;
}

// "300 steps in 0.8 s; eval_loss 0.32 (best 0.3145 at step 200); eval_accuracy 89.40 %; evaluation
// loss: saturated from step 200 on"
std::string verdict_of(const RunRecord& run, const RunCurves& curves) {
  std::string out;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) out += (out.empty() ? "" : "; ") + part;
  };
  const auto figure = [&](const char* key) {
    const auto found = run.figures.find(key);
    return found == run.figures.end() ? NAN : found->second;
  };
  if (const double steps = figure("steps"); std::isfinite(steps)) {
    const double seconds = whole_seconds(run.figures);
    add(fmt::format("{:.0f} steps", steps) +
        (std::isfinite(seconds) ? fmt::format(" in {:.4g} s", seconds) : ""));
  }
  if (const double loss = figure("eval_loss"); std::isfinite(loss)) {
    const double best = figure("best_eval_loss");
    add(fmt::format("eval_loss {:.4g}", loss) +
        (std::isfinite(best) && best < loss
             ? fmt::format(" (best {:.4g} at step {:.0f})", best, figure("best_step"))
             : ""));
  } else if (const double last = figure("loss"); std::isfinite(last)) {
    add(fmt::format("loss {:.4g}", last));
  }
  if (const double accuracy = figure("eval_accuracy"); std::isfinite(accuracy)) {
    add(fmt::format("eval_accuracy {:.2f} %", 100 * accuracy));
  }
  if (curves.train.not_finite > 0) {
    add(fmt::format("the loss was not finite in {} logged steps", curves.train.not_finite));
  }
  const auto judged = [&](const CurveTable& table, const char* key, bool evaluation) {
    return judge_curve(table.column("step"), table.column(key), evaluation);
  };
  if (const std::string eval = judged(curves.eval, "eval_loss", true); !eval.empty()) {
    add("evaluation loss: " + eval);
  } else if (const std::string train = judged(curves.train, "loss", false);
             curves.eval.rows == 0 && !train.empty()) {
    add("training loss: " + train);
  }
  return out;
}

// A value of the configuration as it is printed there: texts that need quotes have them.
std::string plain_text(const std::string& value) {
  const Json parsed = try_parse_ordered_json(value);
  return parsed.is_string() ? parsed.get<std::string>() : value == "null" ? "" : value;
}

// The parts that change while the run goes on.
Json progress_json(const RunRecord& run, const RunCurves& curves, size_t points) {
  Json figures = Json::object();
  for (const auto& [key, value] : run.figures) figures[printable(key)] = number(value);
  return {{"status", run.status},
          {"problem", run.problem},
          {"verdict", verdict_of(run, curves)},
          {"figures", std::move(figures)},
          {"attempts", attempts_of(run)},
          {"train", curve_json(curves.train, points)},
          {"eval", curve_json(curves.eval, points)},
          {"classes", classes_of(run.folder)},
          {"texts", texts_of(run.folder)}};
}

// The names of the runs, with as many of the folders above as tell them apart.
std::vector<std::string> distinct_names(const std::vector<RunRecord>& runs) {
  constexpr int kMostFolders = 16;
  std::vector<std::string> out;
  std::vector<fs::path> above;
  for (const RunRecord& run : runs) {
    out.push_back(run.name);
    above.push_back(named_folder(run.folder).parent_path());
  }
  for (int i = 0; i < kMostFolders; ++i) {
    if (std::set(out.begin(), out.end()).size() == out.size()) break;
    for (size_t k = 0; k < out.size(); ++k) {
      out[k] = (above[k].filename() / out[k]).string();
      above[k] = above[k].parent_path();
    }
  }
  return out;
}

Json run_json(const RunRecord& run, const std::string& name, const RunCurves& curves,
              const std::map<std::string, std::string>& settings, const ReportOptions& options,
              bool planned) {
  Json tags = Json::array();
  for (const auto& [key, value] : settings) {
    if (key.starts_with("experiment.tags[")) tags.push_back(plain_text(value));
  }
  const auto setting = [&](const char* key) {  // a text, without its quotes
    const auto found = settings.find(key);
    return found == settings.end() ? std::string() : plain_text(found->second);
  };
  Json predictions = predictions_of(run.folder);
  Json model = planned ? report_model(run, options.engines, predictions)
                       : Json{{"problem", "the report has more than 4 runs"}};
  Json out{{"name", printable(name)},
           {"folder", printable(run.folder.string())},
           {"quoted", quoted_for_shell(run.folder.string())},
           {"goal", setting("experiment.goal")},
           {"notes", setting("experiment.notes")},
           {"tags", std::move(tags)},
           {"settings", settings},
           {"config", run.config},
           {"predictions", std::move(predictions)},
           {"roofline", roofline_of(run.folder)},
           {"model", std::move(model)}};
  out.update(progress_json(run, curves, options.points));
  return out;
}

std::string report_json(const std::vector<RunRecord>& runs, const ReportOptions& options) {
  std::map<std::string, std::set<std::string>> values;
  std::vector<std::map<std::string, std::string>> settings;
  for (const RunRecord& run : runs) settings.push_back(settings_of(run));
  for (const auto& of_run : settings) {
    for (const auto& [key, value] : of_run) values[key].insert(value);
  }
  Json differing = Json::array();
  for (const auto& [key, different] : values) {
    // Runs without a readable configuration do not count.
    const bool everywhere = std::ranges::all_of(settings, [&name = key](const auto& of_run) {
      return of_run.empty() || of_run.contains(name);
    });
    const bool about_run = key == "name" || key.starts_with("experiment.");
    if (!about_run && (different.size() > 1 || !everywhere)) differing.push_back(key);
  }
  std::vector<RunCurves> curves(runs.size());
#pragma omp parallel for schedule(dynamic)
  for (size_t i = 0; i < runs.size(); ++i) curves[i] = read_curves(runs[i].folder);
  const std::vector<std::string> names = distinct_names(runs);
  Json list = Json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    list.push_back(
        run_json(runs[i], names[i], curves[i], settings[i], options, runs.size() <= kPlannedRuns));
  }
  const Json out{{"title", printable(options.title.empty() ? runs[0].name : options.title)},
                 {"dltrain", version()},
                 {"revision", git_revision()},
                 {"refresh", options.refresh},
                 {"differing", std::move(differing)},
                 {"runs", std::move(list)}};
  // No text can end the element that holds the data.
  const std::string text = json_text(out);
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      escaped += "\\u003c";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

std::string report_page(const std::vector<RunRecord>& runs, const ReportOptions& options) {
  const PageSources& sources = page_sources();
  const std::string data = report_json(runs, options);
  const std::pair<std::string_view, std::string_view> parts[] = {
      {"%CONNECT%", options.refresh > 0 ? "; connect-src 'self'" : ""},
      {"%STYLE%", sources.style},
      {"%DATA%", data},
      {"%CHARTS%", sources.charts},
      {"%SCRIPT%", sources.script}};
  std::string out;
  std::string_view rest = sources.html;
  for (const auto& [name, text] : parts) {
    const size_t at = rest.find(name);
    check_internal(at != rest.npos, "the page has no {}", name);
    out.append(rest.substr(0, at)).append(text);
    rest.remove_prefix(at + name.size());
  }
  return out.append(rest);
}

std::string report_progress(const RunRecord& run, const ReportOptions& options) {
  return json_text(progress_json(run, read_curves(run.folder), options.points));
}

bool is_report_page(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string begin(1000, '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin.find(kGenerator) != begin.npos;
}

}  // namespace dltrain

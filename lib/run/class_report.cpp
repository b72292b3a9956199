#include "run/class_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace dltrain {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of_class_report(size_t k, const std::vector<std::string>& names) {
  return k < names.size() ? names[k] : std::to_string(k);
}

Json scores_json(const ClassScores& scores) {
  return {{"precision", scores.precision},
          {"recall", scores.recall},
          {"f1", scores.f1},
          {"support", static_cast<int64_t>(scores.support)}};
}

// The confusion matrix of labels; empty for another one, or one too wide for a terminal.
std::string confusion_text(const ClassReport& report, const std::vector<std::string>& names,
                           size_t width) {
  constexpr size_t kMostClasses = 20;
  const size_t classes = report.classes.size();
  if (report.confusion.empty() || report.of_outputs || classes > kMostClasses) return "";
  std::string out = "confusion: a row for each class of the targets, a column for each predicted\n";
  const auto digits = fmt::formatted_size("{:.0f}", std::ranges::max(report.confusion));
  for (size_t row = 0; row < classes; ++row) {
    out += fmt::format("{:<{}}", name_of_class_report(row, names), width);
    for (size_t column = 0; column < classes; ++column) {
      out += fmt::format("  {:>{}.0f}", report.confusion[row * classes + column], digits);
    }
    out += '\n';
  }
  return out;
}

}  // namespace

std::string print_class_report(const ClassReport& report, const std::vector<std::string>& names) {
  size_t width = std::string_view("weighted mean").size();
  for (size_t k = 0; k < report.classes.size(); ++k) {
    width = std::max(width, name_of_class_report(k, names).size());
  }
  std::string out = fmt::format("{:<{}}  precision  recall      f1   support\n", "class", width);
  const auto line = [&](const std::string& name, const ClassScores& c) {
    out += fmt::format("{:<{}}  {:9.4f}  {:6.4f}  {:6.4f}  {:8.0f}\n", name, width, c.precision,
                       c.recall, c.f1, c.support);
  };
  for (size_t k = 0; k < report.classes.size(); ++k)
    line(name_of_class_report(k, names), report.classes[k]);
  line("macro mean", report.macro);
  line("weighted mean", report.weighted);
  return printable(out + confusion_text(report, names, width));
}

Json class_report_json(const ClassReport& report, const std::vector<std::string>& names) {
  Json classes = Json::array();
  for (size_t k = 0; k < report.classes.size(); ++k) {
    Json row{{"class", name_of_class_report(k, names)}};
    row.update(scores_json(report.classes[k]));
    classes.push_back(std::move(row));
  }
  Json out{{"classes", std::move(classes)},
           {"macro", scores_json(report.macro)},
           {"weighted", scores_json(report.weighted)}};
  if (report.confusion.empty()) return out;
  const size_t columns = report.confusion.size() / report.classes.size();
  Json rows = Json::array();
  for (size_t at = 0; at < report.confusion.size(); at += columns) {
    Json row = Json::array();
    for (size_t k = 0; k < columns; ++k) {
      row.push_back(static_cast<int64_t>(report.confusion[at + k]));
    }
    rows.push_back(std::move(row));
  }
  out["confusion"] = std::move(rows);
  return out;
}

}  // namespace dltrain

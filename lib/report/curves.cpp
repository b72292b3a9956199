#include "report/curves.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace dltrain {
namespace {

void add_row(CurveTable& table, const nlohmann::json& line) {
  for (const auto& [key, value] : line.items()) {
    if (!value.is_number()) continue;
    std::vector<double>& column = table.columns[key];
    column.resize(table.rows, NAN);
    column.push_back(value.get<double>());
  }
  ++table.rows;
}

void complete(CurveTable& table) {
  for (auto& [key, column] : table.columns) column.resize(table.rows, NAN);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Medians of seven adjacent losses, so that the noise of a mini-batch decides nothing.
std::vector<double> without_spikes(const std::vector<double>& losses) {
  constexpr size_t kBeside = 3;
  std::vector<double> out;
  for (size_t i = 0; i < losses.size(); ++i) {
    const size_t from = i < kBeside ? 0 : i - kBeside;
    const size_t to = std::min(losses.size(), i + kBeside + 1);
    out.push_back(median({losses.begin() + static_cast<ptrdiff_t>(from),
                          losses.begin() + static_cast<ptrdiff_t>(to)}));
  }
  return out;
}

}  // namespace

const std::vector<double>& CurveTable::column(const std::string& key) const {
  static const std::vector<double> none;
  const auto found = columns.find(key);
  return found == columns.end() ? none : found->second;
}

RunCurves read_curves(const std::filesystem::path& run) {
  RunCurves out;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string text; std::getline(in, text);) {
    const nlohmann::json line = try_parse_json(text);
    if (!line.is_object()) continue;
    const auto loss = line.find("loss");
    if (loss != line.end()) {
      add_row(out.train, line);
      out.train.not_finite += loss->is_null() ? 1 : 0;
    } else if (line.contains("eval_samples")) {
      add_row(out.eval, line);
    }
  }
  complete(out.train);
  complete(out.eval);
  return out;
}

CurveTable thinned(const CurveTable& table, size_t points) {
  if (points == 0 || table.rows <= points) return table;
  std::set<size_t> kept{0, table.rows - 1};
  const size_t groups = std::max<size_t>(points / 4, 1);
  for (size_t group = 0; group < groups; ++group) {
    const size_t from = group * table.rows / groups, to = (group + 1) * table.rows / groups;
    for (const char* key : {"loss", "grad_norm", "eval_loss"}) {
      const std::vector<double>& column = table.column(key);
      if (column.empty()) continue;
      size_t least = from, most = from;
      for (size_t i = from; i < to; ++i) {
        if (column[i] < column[least] || std::isnan(column[least])) least = i;
        if (column[i] > column[most] || std::isnan(column[most])) most = i;
      }
      kept.insert({least, most});
    }
  }
  CurveTable out{.rows = kept.size(), .not_finite = table.not_finite};
  for (const auto& [key, column] : table.columns) {
    for (const size_t row : kept) out.columns[key].push_back(column[row]);
  }
  return out;
}

std::string judge_curve(const std::vector<double>& steps, const std::vector<double>& losses,
                        bool evaluation) {
  constexpr double kRise = 0.02, kLittle = 0.02;
  constexpr size_t kLeastEvaluations = 5, kLeastSteps = 20;
  if (losses.size() < (evaluation ? kLeastEvaluations : kLeastSteps)) return "";
  if (!std::ranges::all_of(losses, [](double loss) { return std::isfinite(loss); })) {
    return "";
  }
  const std::vector<double> curve = evaluation ? losses : without_spikes(losses);
  const auto least = std::ranges::min_element(curve);
  const auto best = static_cast<size_t>(least - curve.begin());
  const double rise = curve.back() / *least - 1;
  const size_t after = curve.size() - 1 - best;
  if (evaluation && *least > 0 && after >= 2 && 5 * after >= curve.size() && rise > kRise) {
    return fmt::format("overfits from step {:.0f} on: {:.0f} % above its minimum at the end",
                       steps[best], 100 * rise);
  }
  // The first point at which all but little of the whole improvement is reached.
  const double whole = curve.front() - *least;
  if (!(whole > 0)) return "does not fall";
  size_t reached = 0;
  while (curve[reached] - *least > kLittle * whole) ++reached;
  if (4 * reached >= 3 * curve.size()) {
    return evaluation && after > 0
               ? fmt::format("lowest at step {:.0f}, not at the end", steps[best])
               : "still falling at the end: more steps would help";
  }
  return fmt::format("saturated from step {:.0f} on", steps[reached]);
}

}  // namespace dltrain

#include "sweep/parameter.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/parse_number.h"

namespace dltrain {

std::string value_at(const SweepParameter& parameter, double unit) {
  if (!parameter.is_range()) {
    const auto count = static_cast<double>(parameter.values.size());
    const double index = std::clamp(std::floor(unit * count), 0.0, count - 1);
    return parameter.values[static_cast<size_t>(index)];
  }
  auto [low, high] = parameter.limits();
  // Rounding gives both ends as much room as the numbers between them.
  const double margin = parameter.integer ? 0.4999 : 0;
  const double from = low - margin, to = high + margin;
  const double value =
      parameter.log ? std::exp(std::log(std::max(from, low / 2)) * (1 - unit) + std::log(to) * unit)
                    : from + unit * (to - from);
  if (parameter.integer) return fmt::format("{:.0f}", std::clamp(std::round(value), low, high));
  const std::string text = fmt::format("{:.4g}", value);
  // The rounded text may lie outside.
  const double rounded = *parse_number<double>(text);
  if (rounded < low) return fmt::format("{}", low);
  return rounded > high ? fmt::format("{}", high) : text;
}

double unit_of(const SweepParameter& parameter, const std::string& value) {
  if (!parameter.is_range()) {
    const auto at = std::ranges::find(parameter.values, value);
    if (at == parameter.values.end()) return NAN;
    return (static_cast<double>(at - parameter.values.begin()) + 0.5) /
           static_cast<double>(parameter.values.size());
  }
  const auto number = parse_number<double>(value);
  if (!number) return NAN;
  const auto& [low, high] = parameter.limits();
  const double unit = parameter.log ? std::log(*number / low) / std::log(high / low)
                                    : (*number - low) / (high - low);
  return unit >= -1e-3 && unit <= 1 + 1e-3 ? std::clamp(unit, 0.0, 1.0) : NAN;
}

bool is_ordered(const SweepParameter& parameter) {
  if (parameter.is_range()) return true;
  std::vector<double> numbers;
  for (const std::string& value : parameter.values) {
    const auto number = parse_number<double>(value);
    if (!number) return false;
    numbers.push_back(*number);
  }
  return numbers.size() > 1 && std::ranges::is_sorted(numbers);
}

std::vector<std::string> grid_values(const SweepParameter& parameter) {
  if (!parameter.is_range()) return parameter.values;
  std::vector<std::string> out;
  const int64_t points = parameter.points.value_or(1);
  for (int64_t i = 0; i < points; ++i) {
    const double last = static_cast<double>(std::max<int64_t>(1, points - 1));
    std::string value = value_at(parameter, static_cast<double>(i) / last);
    if (out.empty() || out.back() != value) out.push_back(std::move(value));  // integers repeat
  }
  return out;
}

std::string short_name(const SweepConfig& sweep, const std::string& key) {
  const auto last = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  const auto same = std::ranges::count_if(
      sweep.parameters, [&](const SweepParameter& p) { return last(p.key) == last(key); });
  return same == 1 ? last(key) : key;
}

}  // namespace dltrain

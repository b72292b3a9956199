#include "telemetry/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace dltrain {
namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

// One value a column: means over equal shares; no more columns than values.
std::vector<double> to_columns(std::span<const double> values, int width) {
  const size_t columns = std::min(values.size(), static_cast<size_t>(std::max(width, 1)));
  std::vector<double> out;
  for (size_t c = 0; c < columns; ++c) {
    const size_t first = c * values.size() / columns;
    const size_t last = (c + 1) * values.size() / columns;
    double sum = 0;
    int count = 0;
    for (size_t i = first; i < last; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      ++count;
    }
    out.push_back(count ? sum / count : kGap);
  }
  return out;
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  int count = 0;
};

Range range_of(std::span<const double> values) {
  Range range;
  for (double value : values) {
    if (!std::isfinite(value)) continue;
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
    ++range.count;
  }
  return range;
}

// 1 … levels: even the lowest value is drawn.
int level_of(double value, const Range& range, int levels) {
  if (std::isnan(value)) return 0;
  const double part = range.high > range.low ? (value - range.low) / (range.high - range.low) : 0;
  return 1 + std::min(levels - 1, static_cast<int>(part * levels));
}

constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr const char* kAsciiBlocks[] = {" ", "_", "_", ".", ".", "-", "-", "#", "#"};

}  // namespace

std::string plot(std::span<const double> values, const PlotOptions& options) {
  const std::vector<double> columns = to_columns(values, options.width);
  const Range range = range_of(columns);
  if (range.count < 2 || options.height < 1) return {};
  const auto& blocks = options.utf8 ? kBlocks : kAsciiBlocks;
  const std::string high = fmt::format("{:.4g}", range.high);
  const std::string low = fmt::format("{:.4g}", range.low);
  const size_t label_width = std::max(high.size(), low.size());
  std::string text;
  for (int row = options.height - 1; row >= 0; --row) {
    const bool top = row == options.height - 1, bottom = row == 0;
    const std::string& label = top ? high : bottom ? low : std::string();
    text += fmt::format("{:>{}} ", label, label_width);
    text += options.utf8 ? (top || bottom ? "┤" : "│") : (top || bottom ? "+" : "|");
    std::string line;
    size_t used = 0;  // without trailing blanks
    for (double value : columns) {
      const int level = level_of(value, range, options.height * 8) - row * 8;
      line += blocks[std::clamp(level, 0, 8)];
      if (level > 0) used = line.size();
    }
    text += line.substr(0, used);
    if (!bottom) text += '\n';
  }
  return text;
}

}  // namespace dltrain

#include "telemetry/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

// The vertical axis at the left of the rows, with labels at its ends.
class LeftAxis {
 public:
  LeftAxis(double low, double high, const PlotOptions& options)
      : low_(fmt::format("{:.4g}", low)), high_(fmt::format("{:.4g}", high)), options_(options) {}
  // `row`: from the top.
  std::string at(int row) const {
    const bool top = row == 0, bottom = row == options_.height - 1;
    return fmt::format("{:>{}} ",
                       top      ? high_
                       : bottom ? low_
                                : "",
                       std::max(high_.size(), low_.size())) +
           (options_.utf8 ? (top || bottom ? "┤" : "│") : (top || bottom ? "+" : "|"));
  }

 private:
  std::string low_, high_;
  const PlotOptions& options_;
};

}  // namespace

std::string plot(std::span<const double> values, const PlotOptions& options) {
  const std::vector<double> columns = to_columns(values, options.width);
  const Range range = range_of(columns);
  if (range.count < 2 || options.height < 1) return {};
  const auto& blocks = options.utf8 ? kBlocks : kAsciiBlocks;
  const LeftAxis axis(range.low, range.high, options);
  std::string text;
  for (int row = options.height - 1; row >= 0; --row) {
    text += axis.at(options.height - 1 - row);
    std::string line;
    size_t used = 0;  // without trailing blanks
    for (double value : columns) {
      const int level = level_of(value, range, options.height * 8) - row * 8;
      line += blocks[std::clamp(level, 0, 8)];
      if (level > 0) used = line.size();
    }
    text += line.substr(0, used);
    if (row > 0) text += '\n';
  }
  return text;
}

std::string scatter(std::span<const double> x, std::span<const double> y, bool small_is_good,
                    const PlotOptions& options) {
  std::vector<double> sorted;
  std::ranges::copy_if(y, std::back_inserter(sorted), [](double v) { return std::isfinite(v); });
  if (sorted.size() < 2 || options.height < 2) return {};
  std::ranges::sort(sorted);
  const size_t tenth = sorted.size() / 10;
  const double low = small_is_good ? sorted.front() : sorted[tenth];
  const double high = small_is_good ? sorted[sorted.size() - 1 - tenth] : sorted.back();
  const bool decades = low > 0 && high > 20 * low;
  const auto part_of = [&](double value) {
    if (!(high > low)) return 0.0;
    return decades ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  };
  const auto place = [](double part, int count) {
    return std::clamp(static_cast<int>(part * count), 0, count - 1);
  };
  std::vector<std::string> rows(static_cast<size_t>(options.height),
                                std::string(static_cast<size_t>(options.width), ' '));
  const char outlier = small_is_good ? '^' : 'v';
  int outliers = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) continue;
    const bool beyond = small_is_good ? y[i] > high : y[i] < low;
    outliers += beyond;
    const double part = part_of(std::max(y[i], low));
    char& at = rows[static_cast<size_t>(options.height - 1 - place(part, options.height))]
                   [static_cast<size_t>(place(x[i], options.width))];
    if (at != outlier) at = beyond ? outlier : '*';
  }
  const LeftAxis axis(low, high, options);
  std::string text;
  for (int row = 0; row < options.height; ++row) {
    text += axis.at(row);
    std::string& line = rows[static_cast<size_t>(row)];
    line.erase(line.find_last_not_of(' ') + 1);
    for (const char c : line) text += c == '*' && options.utf8 ? "•" : std::string(1, c);
    if (row + 1 < options.height) text += '\n';
  }
  if (outliers > 0) {
    text += fmt::format("\n{}: {} point{} {} {:.4g}", outlier, outliers, outliers == 1 ? "" : "s",
                        small_is_good ? "above" : "below", small_is_good ? high : low);
  }
  return text;
}

std::string aligned(const std::vector<std::vector<std::string>>& rows, size_t left) {
  std::vector<size_t> width(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      out += i < left ? fmt::format("{:<{}}  ", row[i], width[i])
                      : fmt::format("{:>{}}  ", row[i], width[i]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

}  // namespace dltrain

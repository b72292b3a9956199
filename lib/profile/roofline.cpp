#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "profile/report.h"

namespace dltrain {
namespace {

constexpr double kWidth = 760, kHeight = 460, kLeft = 70, kRight = 20, kTop = 30, kBottom = 50;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

// A logarithmic axis over whole decades.
struct Axis {
  double low, high, from, to;  // values, and their places
  double at(double value) const {
    return from + (to - from) * std::log10(value / low) / std::log10(high / low);
  }
};

Axis axis_of(double least, double most, double from, double to) {
  return {std::pow(10, std::floor(std::log10(least))), std::pow(10, std::ceil(std::log10(most))),
          from, to};
}

std::string text_at(double x, double y, const std::string& text, const char* anchor) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

}  // namespace

std::string roofline_svg(const ProfileReport& report) {
  const double peak = report.limits.peak_flops();
  const double bytes = report.limits.bytes;
  std::vector<const ProfileRow*> rows;
  for (const ProfileRow& row : report.profile.ops) {
    if (row.flops > 0 && row.bytes > 0 && row.seconds > 0) rows.push_back(&row);
  }
  if (rows.empty() || peak <= 0 || bytes <= 0) return "";
  const double ridge = peak / bytes;
  double least_x = ridge / 10, most_x = ridge * 10, least_y = peak / 100;
  for (const ProfileRow* row : rows) {
    least_x = std::min(least_x, row->flops / row->bytes);
    most_x = std::max(most_x, row->flops / row->bytes);
    least_y = std::min(least_y, row->flop_rate());
  }
  const Axis x = axis_of(least_x, most_x, kLeft, kWidth - kRight);
  const Axis y = axis_of(least_y, 1.5 * peak, kHeight - kBottom, kTop);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n",
      kWidth, kHeight);
  out += text_at(kWidth / 2, 18, fmt::format("{} on {}", report.name, report.device), "middle");
  for (double value = x.low; value <= 1.01 * x.high; value *= 10) {
    out += fmt::format("<path d=\"M{0:.1f} {1}V{2}\" stroke=\"#ddd\"/>\n", x.at(value), kTop,
                       kHeight - kBottom);
    out += text_at(x.at(value), kHeight - kBottom + 16, fmt::format("{:g}", value), "middle");
  }
  for (double value = y.low; value <= 1.01 * y.high; value *= 10) {
    out += fmt::format("<path d=\"M{0} {1:.1f}H{2}\" stroke=\"#ddd\"/>\n", kLeft, y.at(value),
                       kWidth - kRight);
    out += text_at(kLeft - 6, y.at(value) + 4, fmt::format("{:g}", value / 1e9), "end");
  }
  out += text_at(kWidth / 2, kHeight - 12, "FLOP a byte", "middle");
  out += fmt::format(
      "<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">"
      "GFLOP/s</text>\n",
      kHeight / 2);
  // The sloped part of the roof begins at the left or at the lower border of the plot.
  const double start = std::max(x.low, y.low / bytes);
  out += fmt::format(
      "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}H{}\" fill=\"none\" stroke=\"#444\" "
      "stroke-width=\"2\"/>\n",
      x.at(start), y.at(start * bytes), x.at(ridge), y.at(peak), kWidth - kRight);
  for (const ProfileRow* row : rows) {
    const double share = row->seconds / report.profile.step_seconds;
    const double cx = x.at(row->flops / row->bytes), cy = y.at(row->flop_rate());
    const double radius = std::max(2.0, 28 * std::sqrt(share));
    out += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"#0969da\" fill-opacity=\"0.45\">"
        "<title>{} ({}): {:.1f} % of the step, {:.0f} % of the limit</title></circle>\n",
        cx, cy, radius, escaped(row->name), escaped(row->detail), 100 * share,
        100 * row->of_limit());
    if (share >= 0.05) out += text_at(cx + radius + 3, cy + 4, row->name, "start");
  }
  return out + "</svg>\n";
}

}  // namespace dltrain

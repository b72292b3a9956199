// Small drawings of a curve in text: what the loss did, at the end of a run.
#pragma once

#include <span>
#include <string>

namespace dltrain {

struct PlotOptions {
  int width = 60;    // columns of the curve itself
  int height = 8;    // lines
  bool utf8 = true;  // else plain ASCII
};

// A curve with its largest and smallest value at the left, several lines without a last newline:
//
//   2.303 ┤█▅
//         │██▇▄▂
//   0.041 ┤██████▇▆▅▅▄▄▃▃▂▂
//
// Each column is the mean of its share of the values. Values that are not finite leave a gap.
// Empty for fewer than two finite values.
std::string plot(std::span<const double> values, const PlotOptions& options);

// The same on one line of `width` columns: "█▅▄▃▂▂▁▁".
std::string sparkline(std::span<const double> values, int width, bool utf8);

}  // namespace dltrain

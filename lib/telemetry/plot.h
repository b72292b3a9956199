// Draws curves, such as that of the loss at the end of a run, and tables as text.
#pragma once

#include <span>
#include <string>
#include <vector>

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
// Each column is the mean of its part of the values. Values that are not finite leave a gap.
// Returns an empty text for fewer than two finite values.
std::string plot(std::span<const double> values, const PlotOptions& options);

// Points with x in [0, 1], likewise. The worst tenth of the y, which would press the others
// together, are drawn at the border as ^ or v, and a last line counts them. `small_is_good`: that
// border is the upper one. Positive y that differ by a factor of 20 have a logarithmic axis.
std::string scatter(std::span<const double> x, std::span<const double> y, bool small_is_good,
                    const PlotOptions& options);

// Lines of a table, of rows of equal length: the first `left` columns begin, the others end at one
// place.
std::string aligned(const std::vector<std::vector<std::string>>& rows, size_t left = 0);

}  // namespace dltrain

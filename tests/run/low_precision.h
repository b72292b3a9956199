// How much the runs of two layouts in 16 bits or TF32 may differ.
#pragma once

#include "run/layout_run.h"

namespace dltrain {

// Bits of precision of the formats, with the implicit one.
inline constexpr int kBitsOfBf16 = 8, kBitsOfFp16 = 11, kBitsOfTf32 = 11, kBitsOfF32 = 24;

// The largest relative differences of the losses (also of an evaluation) and gradient norms of two
// layouts.
struct Tolerance {
  double losses, norms;
};

// The tolerance of layouts in f32 (docs/equality.md).
inline constexpr Tolerance kToleranceOfF32{1e-5, 1e-5};

// The distance of f32 from f64 over the same steps on one rank, in proportion to the unit roundoff
// of `bits`. One rank rounds a sum once. So does another layout, unless it adds values that each of
// `summands` ranks has rounded: then it rounds `summands` + 1 times. The differences from exact
// sums add up. Precision keys of `overrides` do not count.
inline Tolerance low_precision(const Network& network, std::vector<std::string> overrides, int bits,
                               int summands = 1) {
  std::erase_if(overrides, [](const std::string& text) { return text.starts_with("precision"); });
  const LayoutRun narrow = layout_run(network, 1, overrides);
  const LayoutRun wide = layout_run(network, 1, overrides, 0, DType::f64);
  const int roundings = 1 + (summands == 1 ? 1 : summands + 1);
  const double scale = roundings * std::exp2(kBitsOfF32 - bits);
  const double evaluation =
      wide.evaluation == 0 ? 0 : std::abs(narrow.evaluation / wide.evaluation - 1);
  return {scale * std::max(greatest_difference(narrow.losses, wide.losses), evaluation),
          scale * greatest_difference(narrow.norms, wide.norms)};
}

// Checks that the losses and norms of a layout are those of another one within a tolerance.
inline void check_close(const LayoutRun& run, const LayoutRun& other, const Tolerance& tolerance) {
  CHECK(greatest_difference(run.losses, other.losses) < tolerance.losses);
  CHECK(greatest_difference(run.norms, other.norms) < tolerance.norms);
}

}  // namespace dltrain

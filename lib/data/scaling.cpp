#include "data/scaling.h"

#include <cmath>

#include "base/error.h"

namespace dltrain {

std::string Scaling::problem(int64_t channels) const {
  if (!std::isfinite(scale) || scale == 0) return "scale must be a finite number other than 0";
  if (mean.empty() != std.empty()) return "normalize needs both mean and std";
  for (const auto* list : {&mean, &std}) {
    const auto size = static_cast<int64_t>(list->size());
    if (size > 1 && size != channels) {
      return fmt::format("normalize has {} numbers for {} channels (the innermost dimension)", size,
                         channels);
    }
    for (double value : *list) {
      if (!std::isfinite(value)) return "normalize has a number that is not finite";
    }
  }
  for (double value : std) {
    if (value <= 0) return fmt::format("normalize.std must be above 0, not {}", value);
  }
  return {};
}

Scaler::Scaler(const Scaling& scaling, int64_t channels)
    : active_(scaling.scale != 1 || !scaling.mean.empty()),
      scale_(scaling.scale),
      channels_(channels) {
  const std::string problem = scaling.problem(channels);
  if (!problem.empty()) throw Error(ExitCode::usage, problem);
  for (int64_t c = 0; c < (active_ ? channels : 0); ++c) {
    const auto pick = [c](const std::vector<double>& list, double otherwise) {
      return list.empty() ? otherwise : list.size() == 1 ? list[0] : list[static_cast<size_t>(c)];
    };
    mean_.push_back(pick(scaling.mean, 0));
    std_.push_back(pick(scaling.std, 1));
  }
}

}  // namespace dltrain

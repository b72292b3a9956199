#include "data/scaling.h"

#include "base/error.h"

namespace dltrain {

Scaler::Scaler(const Scaling& scaling, int64_t channels)
    : active_(scaling.scale != 1 || !scaling.mean.empty()),
      scale_(scaling.scale),
      channels_(channels) {
  for (const auto* list : {&scaling.mean, &scaling.std}) {
    if (list->size() <= 1 || static_cast<int64_t>(list->size()) == channels) continue;
    fail(ExitCode::usage, "normalize has {} numbers for {} channels (the innermost dimension)",
         list->size(), channels);
  }
  for (int64_t c = 0; c < (active_ ? channels : 0); ++c) {
    const auto pick = [c](const std::vector<double>& list, double otherwise) {
      return list.empty() ? otherwise : list.size() == 1 ? list[0] : list[static_cast<size_t>(c)];
    };
    mean_.push_back(pick(scaling.mean, 0));
    std_.push_back(pick(scaling.std, 1));
  }
}

}  // namespace dltrain

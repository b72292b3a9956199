#include "data/distributions.h"

#include <cmath>
#include <span>
#include <vector>

#include "base/error.h"

namespace dltrain {

void check_distributions(const Dataset& data, int64_t classes) {
  constexpr double kRounding = 0.02;
  const FieldSpec& spec = data.fields().back();
  check_internal(spec.sample.dtype == DType::f32 && spec.sample.shape.elements() % classes == 0,
                 "the targets are {}", to_string(spec.sample));
  const auto group = static_cast<size_t>(classes);
  std::vector<float> targets(static_cast<size_t>(spec.sample.shape.elements()));
  for (int64_t sample = 0; sample < data.size(); ++sample) {
    data.gather(data.target_field(), {&sample, 1}, reinterpret_cast<std::byte*>(targets.data()));
    for (size_t first = 0; first < targets.size(); first += group) {
      double sum = 0;
      for (float share : std::span(targets).subspan(first, group)) {
        if (!(share < 0) && !(share > 1)) {
          sum += static_cast<double>(share);
          continue;
        }
        throw Error(ExitCode::data,
                    fmt::format("target {} is no share of a class, from 0 to 1 (labels are "
                                "integers; numbers to predict go with mse and its like)",
                                share),
                    data.place_of(sample));
      }
      if (std::isnan(sum) || std::abs(sum - 1) <= kRounding) continue;
      throw Error(ExitCode::data,
                  fmt::format("the targets of {} classes add up to {:.6g}, not to 1", classes, sum),
                  data.place_of(sample));
    }
  }
}

}  // namespace dltrain

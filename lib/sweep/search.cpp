#include "sweep/search.h"

#include <algorithm>

#include "base/error.h"
#include "base/philox.h"
#include "sweep/parameter.h"
#include "sweep/sobol.h"

namespace dltrain {
namespace {

constexpr int64_t kTpeStart = 10;  // quasi-random trials

double random_unit(const SweepConfig& sweep, size_t parameter, int64_t index) {
  const auto bits = random_bits(static_cast<uint64_t>(sweep.seed), random_stream("sweep.random"),
                                static_cast<uint64_t>(index), parameter);
  return (bits + 0.5) / 0x1p32;
}

// Dimensions beyond the table of direction numbers are random draws.
double quasi_random_unit(const SweepConfig& sweep, size_t parameter, int64_t index) {
  if (parameter >= kSobolDimensions) return random_unit(sweep, parameter, index);
  const uint32_t shift =
      random_bits(static_cast<uint64_t>(sweep.seed), random_stream("sweep.shift"), 0, parameter) >>
      2;
  return ((sobol(index, static_cast<int>(parameter)) ^ shift) + 0.5) / 0x1p30;
}

}  // namespace

int64_t trial_count(const SweepConfig& sweep) {
  if (sweep.search != SearchKind::grid) return *sweep.trials;
  int64_t count = 1;
  for (const SweepParameter& parameter : sweep.parameters) {
    count *= static_cast<int64_t>(grid_values(parameter).size());
    if (count > 100000) {
      fail_at(sweep, "search", "the grid has more than 100,000 trials; use search: quasi_random");
    }
  }
  return count;
}

int64_t needed_trials(const SweepConfig& sweep, int64_t index) {
  if (sweep.search != SearchKind::tpe || index < kTpeStart) return 0;
  return std::max<int64_t>(0, index - sweep.parallel + 1);
}

std::vector<std::string> values_of_trial(const SweepConfig& sweep, int64_t index,
                                         std::span<const Observation> earlier) {
  std::vector<std::string> out(sweep.parameters.size());
  if (sweep.search == SearchKind::grid) {  // the last parameter varies fastest
    for (size_t p = out.size(); p-- > 0;) {
      const std::vector<std::string> values = grid_values(sweep.parameters[p]);
      const auto size = static_cast<int64_t>(values.size());
      out[p] = values[static_cast<size_t>(index % size)];
      index /= size;
    }
    return out;
  }
  const bool learns = sweep.search == SearchKind::tpe && index >= kTpeStart && !earlier.empty();
  const std::vector<double> point =
      learns ? tpe_point(sweep, index, earlier) : std::vector<double>();
  for (size_t p = 0; p < out.size(); ++p) {
    const double unit = learns                               ? point[p]
                        : sweep.search == SearchKind::random ? random_unit(sweep, p, index)
                                                             : quasi_random_unit(sweep, p, index);
    out[p] = value_at(sweep.parameters[p], unit);
  }
  return out;
}

}  // namespace dltrain

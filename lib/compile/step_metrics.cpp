#include "compile/step_metrics.h"

namespace dltrain {

std::vector<RouterSums> router_sums(const std::vector<StepMetric>& metrics,
                                    std::span<const double> sums) {
  std::vector<RouterSums> out;
  for (const StepMetric& metric : metrics) {
    const auto own = sums.first(static_cast<size_t>(metric.size));
    if (metric.router) out.push_back({*metric.router, {own.begin(), own.end()}});
    sums = sums.subspan(own.size());
  }
  return out;
}

std::vector<std::pair<std::string, double>> fp8_shares(const std::vector<StepMetric>& metrics,
                                                       std::span<const double> sums) {
  double saturated = 0, underflow = 0, terms = 0;
  for (const StepMetric& metric : metrics) {
    if (metric.of_fp8) {
      saturated += sums[0];
      underflow += sums[1];
      terms += sums[2];
    }
    sums = sums.subspan(static_cast<size_t>(metric.size));
  }
  if (terms == 0) return {};
  return {{"fp8_saturated", saturated / terms}, {"fp8_underflow", underflow / terms}};
}

}  // namespace dltrain

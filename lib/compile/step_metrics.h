// The sums over a step or an evaluation pass that the host reads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nn/model.h"

namespace dltrain {

// A sum that a step (or an evaluation pass) computes: state value `name`, f64, contains the sum
// over the global batch (or the pass). Metrics of training have one element, but for those of
// sources and routers, which come last.
struct StepMetric {
  std::string label;                      // "loss", "accuracy"
  std::string name;                       // "metric.loss"
  int64_t size = 1;                       // elements
  std::optional<RouterInfo> router = {};  // the sums are those of this router
  bool of_sources = false;                // of each source of the data the losses' sum and number
  bool of_gradient = false;               // passes/gradient_squares.h: the last metric
  bool of_fp8 = false;                    // of a layer (passes/fp8.h)

  // Its element becomes a mean over the targets that count.
  bool is_mean() const { return !router && !of_sources && !of_gradient && !of_fp8; }
};

// Returns the sums of the routers. `sums`: the elements of each metric, in order.
std::vector<RouterSums> router_sums(const std::vector<StepMetric>& metrics,
                                    std::span<const double> sums);

// Returns what FP8 has lost, as a mean over layers, operands and micro-batches: fp8_saturated and
// fp8_underflow, shares of elements; nothing without FP8.
std::vector<std::pair<std::string, double>> fp8_shares(const std::vector<StepMetric>& metrics,
                                                       std::span<const double> sums);

}  // namespace dltrain

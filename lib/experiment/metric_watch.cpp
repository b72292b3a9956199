#include "experiment/metric_watch.h"

#include <cmath>

namespace dltrain {

MetricMode default_mode(std::string_view metric) {
  for (std::string_view small : {"loss", "error", "mae", "mse", "perplexity", "bits_per", "seconds",
                                 "_ms", "bytes", "_mib", "flops"}) {
    if (metric.find(small) != std::string_view::npos) return MetricMode::min;
  }
  return MetricMode::max;
}

MetricWatch::MetricWatch(const std::string& metric, MetricMode mode, double min_delta,
                         const MetricRecord& record)
    : mode_(mode), min_delta_(min_delta), record_{.metric = metric} {
  if (record.metric == metric) record_ = record;
}

bool MetricWatch::observe(int64_t step, double value) {
  const double gain = mode_ == MetricMode::min ? record_.value - value : value - record_.value;
  const bool better = std::isfinite(value) && (record_.step == 0 || gain > min_delta_);
  if (better) {
    record_.step = step;
    record_.value = value;
    record_.since = 0;
  } else {
    ++record_.since;
  }
  return better;
}

}  // namespace dltrain

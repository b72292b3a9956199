// Tracks one metric of the evaluations: the best value, and the number of evaluations since. Used
// for the best checkpoint and for early stopping.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dltrain {

// The state of a watch in a checkpoint.
struct MetricRecord {
  std::string metric;
  int64_t step = 0;  // of the best evaluation; 0: none yet
  double value = 0;
  int64_t since = 0;  // evaluations after it, none of which was better
  bool operator==(const MetricRecord&) const = default;
};

enum class MetricMode : uint8_t { min, max };

// The default mode: min for losses, errors, perplexity and costs (times, memory), max for all else.
MetricMode default_mode(std::string_view metric);

class MetricWatch {
 public:
  // `record`: of the resumed run; ignored if it is of another metric.
  MetricWatch(const std::string& metric, MetricMode mode, double min_delta,
              const MetricRecord& record = {});

  // Adds one evaluation; returns true if it is better than the best one by more than min_delta. A
  // value that is not finite is never better.
  bool observe(int64_t step, double value);

  const MetricRecord& record() const { return record_; }
  MetricMode mode() const { return mode_; }

 private:
  MetricMode mode_;
  double min_delta_;
  MetricRecord record_;
};

}  // namespace dltrain

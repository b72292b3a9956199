// Follows one metric of the evaluations: which was the best, and how many were not better since.
// The best checkpoint and early stopping are both decided by one of these.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dltrain {

// What a checkpoint keeps of a watch.
struct MetricRecord {
  std::string metric;
  int64_t step = 0;  // of the best evaluation; 0: none yet
  double value = 0;
  int64_t since = 0;  // evaluations after it, none of which was better
  bool operator==(const MetricRecord&) const = default;
};

enum class MetricMode : uint8_t { min, max };

// Without a word from the person: smaller is better for the loss, errors and perplexity, greater
// for everything else.
MetricMode default_mode(std::string_view metric);

class MetricWatch {
 public:
  // `record`: of the run that is resumed; one of another metric is not used.
  MetricWatch(const std::string& metric, MetricMode mode, double min_delta,
              const MetricRecord& record = {});

  // Takes in one evaluation; true when it is better than the best before by more than min_delta. A
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

// Learning-rate schedules: a factor of the peak learning rate as a pure function of the step.
//
// By default step `step` (0-based) of a run of `max_steps` with w warm-up steps has the factor
// (step + 1) / w while step + 1 ≤ w, and then the schedule's function of progress = (step + 1 − w)
// / (max_steps − w), which is 1 in the last step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"

namespace dltrain {

// A step after the warm-up.
struct SchedulePoint {
  int64_t step;       // 0-based
  int64_t warmup;     // steps of the warm-up
  int64_t max_steps;  // of the run
  double progress;    // in (0, 1]
};

struct Schedule : ConfigVariant {
  int64_t warmup_steps = 0;
  std::optional<double> warmup_ratio;
  double min_ratio = 0;

  void describe(Fields& f) override;
  void validate(Diagnostics& diagnostics) const override;

  // Returns warnings about settings that do not suit a run of `max_steps` steps.
  virtual std::vector<std::string> misfits(int64_t max_steps) const;
  // Returns the factor after the warm-up.
  virtual double decay(const SchedulePoint& at) const = 0;
  // Returns the factor of the peak learning rate in a step.
  virtual double factor(int64_t step, int64_t max_steps) const;

 protected:
  void describe_warmup(Fields& f);
  // The steps of the warm-up: warmup_ratio is rounded up, as Hugging Face's trainer does.
  int64_t warmup(int64_t max_steps) const;
  // Falls from 1 to min_ratio as `shape` falls from 1 to 0.
  double between(double shape) const { return min_ratio + (1 - min_ratio) * shape; }
};

const KindTable<Schedule>& schedule_table();

}  // namespace dltrain

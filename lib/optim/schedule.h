// Learning-rate schedules: a factor of the peak learning rate as a pure function of the step.
#pragma once

#include <cstdint>

#include "config/fields.h"

namespace dltrain {

struct Schedule : Chosen {
  int64_t warmup_steps = 0;
  double min_ratio = 0;

  virtual ~Schedule() = default;
  virtual void describe(Fields& f);
  // Between 1 at `progress` 0 (end of the warmup) and min_ratio at 1 (the last step).
  virtual double decay(double progress) const = 0;

  // The factor in step `step` (0-based) of a run of `max_steps`: (step + 1) / warmup_steps during
  // the warmup, then decay((step + 1 − warmup) / (max_steps − warmup)).
  double factor(int64_t step, int64_t max_steps) const;
};

const KindTable<Schedule>& schedule_table();

}  // namespace dltrain

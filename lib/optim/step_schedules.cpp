// Schedules by factors: torch.optim.lr_scheduler's StepLR, MultiStepLR and ExponentialLR, counted
// in optimizer steps.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "optim/schedules.h"

namespace dltrain {
namespace {

struct Step final : Schedule {
  std::optional<int64_t> step_size;
  std::vector<int64_t> milestones;
  double gamma = 0.1;

  void describe(Fields& f) override {
    Schedule::describe(f);
    f.integer("step_size", step_size,
              {.doc = "Steps between two multiplications by gamma, from the start of the run",
               .min = 1,
               .max = 1e15});
    f.integers("milestones", milestones,
               {.doc = "Steps after which the learning rate is multiplied by gamma", .min = 1});
    f.number("gamma", gamma, {.doc = "The factor", .max = 1, .above = 0});
  }
  void validate(Problems& problems) const override {
    Schedule::validate(problems);
    if (step_size.has_value() == !milestones.empty()) {
      problems.add(*this, milestones.empty() ? "step_size" : "milestones",
                   "a step schedule needs either step_size or milestones");
    }
    if (!std::is_sorted(milestones.begin(), milestones.end())) {
      problems.add(*this, "milestones", "milestones must rise");
    }
  }
  std::vector<std::string> misfits(int64_t max_steps) const override {
    std::vector<std::string> out = Schedule::misfits(max_steps);
    const int64_t first = step_size ? *step_size : milestones[0];
    if (first >= max_steps) {
      out.push_back(
          fmt::format("lr_scheduler: the first fall of the learning rate is after {} "
                      "steps, the run has {}: it never falls",
                      first, max_steps));
    }
    return out;
  }
  double decay(const SchedulePoint& at) const override {
    const int64_t times =
        step_size
            ? at.step / *step_size
            : std::upper_bound(milestones.begin(), milestones.end(), at.step) - milestones.begin();
    return std::max(min_ratio, std::pow(gamma, static_cast<double>(times)));
  }
};

struct Exponential final : Schedule {
  double gamma = 0;

  void describe(Fields& f) override {
    Schedule::describe(f);
    f.number("gamma", gamma,
             {.doc = "Factor from one step to the next", .required = true, .max = 1, .above = 0});
  }
  double decay(const SchedulePoint& at) const override {
    const int64_t since = at.step + 1 - std::max<int64_t>(at.warmup, 1);
    return std::max(min_ratio, std::pow(gamma, static_cast<double>(since)));
  }
};

}  // namespace

KindRow<Schedule> step_schedule_row() {
  return {"step", "multiplied by gamma every step_size steps or at milestones", make_kind_of<Step>};
}
KindRow<Schedule> exponential_schedule_row() {
  return {"exponential", "multiplied by gamma in every step", make_kind_of<Exponential>};
}

}  // namespace dltrain

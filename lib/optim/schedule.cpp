#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

namespace dltrain {
namespace {

struct Constant final : Schedule {
  void describe(Fields& f) override { describe_warmup(f); }
  double decay(const SchedulePoint&) const override { return 1; }
};

struct Linear final : Schedule {
  double decay(const SchedulePoint& at) const override { return between(1 - at.progress); }
};

// Loshchilov & Hutter 2017. Restarts are those of Hugging Face's cosine_with_hard_restarts.
struct Cosine final : Schedule {
  int64_t restarts = 0;

  void describe(Fields& f) override {
    Schedule::describe(f);
    f.integer("restarts", restarts,
              {.doc = "Number of returns to the peak, at equal intervals after the warm-up",
               .min = 0,
               .max = 1e6,
               .known_as = {"num_cycles", "cycles", "num_restarts"}});
  }
  double decay(const SchedulePoint& at) const override {
    const double cycles = at.progress * static_cast<double>(restarts + 1);
    const double fraction = at.progress >= 1 ? 1 : cycles - std::floor(cycles);
    return between((1 + std::cos(std::numbers::pi * fraction)) / 2);
  }
};

struct Polynomial final : Schedule {
  double power = 1;

  void describe(Fields& f) override {
    Schedule::describe(f);
    f.number("power", power, {.doc = "Exponent of the remaining share of the run", .above = 0});
  }
  double decay(const SchedulePoint& at) const override {
    return between(std::pow(1 - at.progress, power));
  }
};

// Vaswani et al. 2017 without the factor of the model's width, as Hugging Face's inverse_sqrt.
struct InverseSqrt final : Schedule {
  std::optional<int64_t> timescale;

  void describe(Fields& f) override {
    Schedule::describe(f);
    f.integer("timescale", timescale,
              {.doc = "The rate falls as √(timescale / steps); default: the warm-up, or 10000 "
                      "without one",
               .min = 1,
               .max = 1e15});
  }
  double decay(const SchedulePoint& at) const override {
    const auto scale =
        static_cast<double>(timescale.value_or(at.warmup > 0 ? at.warmup : int64_t{10000}));
    const double since = static_cast<double>(at.step + 1 - at.warmup) + scale;
    return std::max(min_ratio, std::sqrt(scale / since));
  }
};

}  // namespace

void Schedule::describe_warmup(Fields& f) {
  f.integer("warmup_steps", warmup_steps,
            {.doc = "Steps over which the learning rate rises linearly",
             .min = 0,
             .known_as = {"warmup", "num_warmup_steps"}});
  f.number("warmup_ratio", warmup_ratio,
           {.doc = "The same as a share of the run, rounded up to steps",
            .min = 0,
            .max = 1,
            .known_as = {"warmup_fraction"}});
}

void Schedule::describe(Fields& f) {
  describe_warmup(f);
  f.number("min_ratio", min_ratio,
           {.doc = "Final learning rate as a share of the peak",
            .min = 0,
            .max = 1,
            .known_as = {"min_lr_ratio", "final_ratio"}});
}

void Schedule::validate(Diagnostics& diagnostics) const {
  if (warmup_ratio && warmup_steps != 0) {
    diagnostics.add(*this, "warmup_ratio",
                    "warmup_steps and warmup_ratio are both given; keep one");
  }
}

std::vector<std::string> Schedule::misfits(int64_t max_steps) const {
  if (warmup_steps <= max_steps) return {};
  return {fmt::format(
      "lr_scheduler.warmup_steps {} is more than the run's {} steps: the learning "
      "rate reaches {:.3g} of its peak at most",
      warmup_steps, max_steps, static_cast<double>(max_steps) / static_cast<double>(warmup_steps))};
}

int64_t Schedule::warmup(int64_t max_steps) const {
  if (!warmup_ratio) return warmup_steps;
  return static_cast<int64_t>(std::ceil(*warmup_ratio * static_cast<double>(max_steps)));
}

double Schedule::factor(int64_t step, int64_t max_steps) const {
  const int64_t w = warmup(max_steps);
  if (step < w) return static_cast<double>(step + 1) / static_cast<double>(w);
  const double rest = static_cast<double>(max_steps - w);
  const double progress = rest > 0 ? std::min(static_cast<double>(step + 1 - w) / rest, 1.0) : 1.0;
  return decay({step, w, max_steps, progress});
}

std::vector<KindRow<Schedule>> common_schedule_rows() {
  return {{"constant", "no decay", make_kind_of<Constant>},
          {"linear", "straight line to min_ratio", make_kind_of<Linear>},
          {"cosine", "half a cosine to min_ratio, once or several times", make_kind_of<Cosine>},
          {"polynomial", "a power of the remaining share of the run", make_kind_of<Polynomial>},
          {"inverse_sqrt", "one over the root of the steps", make_kind_of<InverseSqrt>}};
}

// Returns the rows of all files of this folder (generated).
std::vector<std::vector<KindRow<Schedule>>> schedule_rows();

const KindTable<Schedule>& schedule_table() {
  static const auto table = joined_table<Schedule>("lr_scheduler", schedule_rows());
  return table;
}

}  // namespace dltrain

#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dltrain {
namespace {

struct Constant final : Schedule {
  void describe(Fields& f) override {
    f.integer("warmup_steps", warmup_steps,
              {.doc = "Steps over which the learning rate rises linearly",
               .min = 0,
               .known_as = {"warmup", "num_warmup_steps"}});
  }
  double decay(double) const override { return 1; }
};

struct Linear final : Schedule {
  double decay(double progress) const override {
    return min_ratio + (1 - min_ratio) * (1 - progress);
  }
};

// Loshchilov & Hutter 2017, without restarts.
struct Cosine final : Schedule {
  double decay(double progress) const override {
    return min_ratio + (1 - min_ratio) * (1 + std::cos(std::numbers::pi * progress)) / 2;
  }
};

}  // namespace

void Schedule::describe(Fields& f) {
  f.integer("warmup_steps", warmup_steps,
            {.doc = "Steps over which the learning rate rises linearly",
             .min = 0,
             .known_as = {"warmup", "num_warmup_steps"}});
  f.number("min_ratio", min_ratio,
           {.doc = "Final learning rate as a share of the peak",
            .min = 0,
            .max = 1,
            .known_as = {"min_lr_ratio", "final_ratio"}});
}

double Schedule::factor(int64_t step, int64_t max_steps) const {
  const double s = static_cast<double>(step + 1), warmup = static_cast<double>(warmup_steps);
  if (s <= warmup) return s / warmup;
  const double rest = static_cast<double>(max_steps) - warmup;
  return decay(rest > 0 ? std::min((s - warmup) / rest, 1.0) : 1.0);
}

const KindTable<Schedule>& schedule_table() {
  static const KindTable<Schedule> table{
      "lr_scheduler",
      {{"constant", "no decay", make_kind_of<Constant>},
       {"linear", "straight line to min_ratio", make_kind_of<Linear>},
       {"cosine", "half a cosine to min_ratio", make_kind_of<Cosine>}}};
  return table;
}

}  // namespace dltrain

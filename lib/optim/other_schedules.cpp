// Schedules by factors: torch.optim.lr_scheduler's StepLR, MultiStepLR and ExponentialLR, counted
// in optimizer steps. Schedules of phases: one_cycle (Smith & Topin 2018, as OneCycleLR without its
// momentum cycle) and wsd (warm-up, stable, decay: Hu et al. 2024, MiniCPM).
#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "optim/schedule.h"

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
  void validate(Diagnostics& diagnostics) const override {
    Schedule::validate(diagnostics);
    if (step_size.has_value() == !milestones.empty()) {
      diagnostics.add(*this, milestones.empty() ? "step_size" : "milestones",
                      "a step schedule needs either step_size or milestones");
    }
    if (!std::is_sorted(milestones.begin(), milestones.end())) {
      diagnostics.add(*this, "milestones", "milestones must be in ascending order");
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

enum class Anneal : uint8_t { cosine, linear, one_minus_sqrt };

// Falls from 1 at `fraction` 0 to 0 at `fraction` 1.
double falling(Anneal anneal, double fraction) {
  if (anneal == Anneal::cosine) return (1 + std::cos(std::numbers::pi * fraction)) / 2;
  return anneal == Anneal::linear ? 1 - fraction : 1 - std::sqrt(fraction);
}

struct OneCycle final : Schedule {
  double pct_start = 0.3, div_factor = 25, final_div_factor = 1e4;
  Anneal anneal_strategy = Anneal::cosine;

  void describe(Fields& f) override {
    f.number("pct_start", pct_start,
             {.doc = "Share of the run in which the learning rate rises", .above = 0, .below = 1});
    f.number("div_factor", div_factor,
             {.doc = "The run starts at the peak divided by this", .min = 1});
    f.number("final_div_factor", final_div_factor,
             {.doc = "The run ends at the initial rate divided by this", .min = 1});
    f.choice("anneal_strategy", anneal_strategy,
             {{"cos", Anneal::cosine, "half a cosine"}, {"linear", Anneal::linear, "a line"}},
             {.doc = "How the rate changes between the three values"});
  }
  double decay(const SchedulePoint&) const override { return 1; }
  double factor(int64_t step, int64_t max_steps) const override {
    if (max_steps <= 1) return 1;  // neither a rise nor a fall
    const double last = static_cast<double>(max_steps) - 1, at = static_cast<double>(step);
    const double peak = pct_start * static_cast<double>(max_steps) - 1;
    const double start = 1 / div_factor, end = start / final_div_factor;
    if (at <= peak) return 1 + (start - 1) * falling(anneal_strategy, peak > 0 ? at / peak : 1);
    const double fraction = last > peak ? std::min((at - peak) / (last - peak), 1.0) : 1;
    return end + (1 - end) * falling(anneal_strategy, fraction);
  }
};

struct WarmupStableDecay final : Schedule {
  static constexpr double kRatio = 0.1;
  std::optional<int64_t> decay_steps;
  double decay_ratio = kRatio;
  Anneal anneal_strategy = Anneal::linear;

  void describe(Fields& f) override {
    Schedule::describe(f);
    f.integer("decay_steps", decay_steps,
              {.doc = "Steps at the end of the run in which the learning rate falls",
               .min = 0,
               .known_as = {"num_decay_steps"}});
    f.number("decay_ratio", decay_ratio,
             {.doc = "The same as a share of the run", .min = 0, .max = 1});
    f.choice("anneal_strategy", anneal_strategy,
             {{"linear", Anneal::linear, "a line"},
              {"cos", Anneal::cosine, "half a cosine"},
              {"1-sqrt", Anneal::one_minus_sqrt, "one minus the root (Hägele et al. 2024)"}},
             {.doc = "How the rate falls", .known_as = {"decay_type"}});
  }
  void validate(Diagnostics& diagnostics) const override {
    Schedule::validate(diagnostics);
    // The configuration of a run names the default too.
    if (decay_steps && decay_ratio != kRatio) {
      diagnostics.add(*this, "decay_ratio", "decay_steps and decay_ratio are both given; keep one");
    }
  }
  std::vector<std::string> misfits(int64_t max_steps) const override {
    std::vector<std::string> out = Schedule::misfits(max_steps);
    if (out.empty() && decay_steps && *decay_steps > max_steps - warmup(max_steps)) {
      out.push_back(
          fmt::format("lr_scheduler.decay_steps {} is more than the {} steps after the warm-up: "
                      "the learning rate begins below its peak",
                      *decay_steps, max_steps - warmup(max_steps)));
    }
    return out;
  }
  double decay(const SchedulePoint& at) const override {
    const double max_steps = static_cast<double>(at.max_steps);
    const double falls =
        decay_steps ? static_cast<double>(*decay_steps) : std::ceil(decay_ratio * max_steps);
    const double since = static_cast<double>(at.step + 1) - (max_steps - falls);
    if (since <= 0) return 1;
    return between(falling(anneal_strategy, std::min(since / falls, 1.0)));
  }
};

}  // namespace

std::vector<KindRow<Schedule>> other_schedule_rows() {
  return {
      {"step", "multiplied by gamma every step_size steps or at milestones", make_kind_of<Step>},
      {"exponential", "multiplied by gamma in every step", make_kind_of<Exponential>},
      {"one_cycle", "up to the peak and down far below the start (as PyTorch's OneCycleLR)",
       make_kind_of<OneCycle>},
      {"wsd", "warm-up, stable, decay at the end", make_kind_of<WarmupStableDecay>}};
}

}  // namespace dltrain

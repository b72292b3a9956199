// dltrain lr-find: the learning-rate range test (Smith 2017, "Cyclical Learning Rates for Training
// Neural Networks", section 3.3): a short training with a rate that grows in every step. Nothing is
// stored.
#include <algorithm>
#include <cmath>
#include <utility>

#include "dltrain/commands.h"
#include "optim/schedule.h"
#include "run/trainer.h"
#include "telemetry/console.h"
#include "telemetry/plot.h"

namespace dltrain {
namespace {

struct LrFindOptions {
  ConfigOptions config;
  double low = 1e-6, high = 1;
  int64_t steps = 100;
};

// The rate of the last of `steps` is `ratio` times that of the first.
struct Ramp final : Schedule {
  double ratio = 1;
  int64_t steps = 2;
  double decay(const SchedulePoint& at) const override {
    return std::pow(ratio, static_cast<double>(at.step) / static_cast<double>(steps - 1));
  }
};

struct RatePoint {
  double rate, loss, smooth;
};

// Thrown to end the training.
struct Diverged {};

// Reads the experiment, with the lowest rate. It need not have one.
Experiment experiment_at_lowest(const LrFindOptions& options, std::vector<std::string> overrides) {
  try {
    Experiment out = options.config.load(overrides);
    out.optimizer->set_learning_rate(options.low);
    return out;
  } catch (const ConfigError&) {
    overrides.push_back(fmt::format("optimizer.learning_rate={:.17g}", options.low));
    return options.config.load(overrides);
  }
}

// The loss is averaged over about ten steps, without the bias to the first (Kingma & Ba 2015).
// `factor`: what optimizer.scale_learning_rate multiplies rates by in a run.
std::vector<RatePoint> losses_by_rate(const LrFindOptions& options, double& factor) {
  constexpr double kKept = 0.9, kDiverged = 4;
  std::vector<std::string> overrides{fmt::format("training.max_steps={}", options.steps),
                                     "training.num_epochs=null", "training.on_non_finite=stop",
                                     "logging.logging_steps=1"};
  std::ranges::copy(one_rank_overrides(), std::back_inserter(overrides));
  Experiment experiment = experiment_at_lowest(options, std::move(overrides));
  accumulate_on_one_rank(experiment.training);
  auto ramp = std::make_unique<Ramp>();
  ramp->ratio = options.high / options.low;
  ramp->steps = options.steps;
  experiment.lr_scheduler = std::move(ramp);
  const auto scale = std::exchange(experiment.optimizer->scale_learning_rate, std::nullopt);
  Session session = open_session(experiment, {.engines = engines(), .evaluation = false});
  start_session(session);
  factor = scale ? scale->factor(session.batch.global_batch) : 1;
  std::vector<RatePoint> points;
  double sum = 0, weight = 0, least = INFINITY;
  TrainEvents events;
  events.on_step = [&](const StepRecord& record) {
    sum = kKept * sum + (1 - kKept) * record.loss;
    weight = kKept * weight + (1 - kKept);
    points.push_back({record.learning_rate, record.loss, sum / weight});
    least = std::min(least, points.back().smooth);
    if (!std::isfinite(record.loss) || points.back().smooth > kDiverged * least) throw Diverged();
  };
  try {
    train(session, events, {.run_folder = {}, .resolved_config = {}});
  } catch (const Diverged&) {
  } catch (const Error& error) {
    if (error.code() != ExitCode::diverged) throw;
  }
  return points;
}

ExitCode find_rate(const LrFindOptions& options) {
  if (options.low >= options.high) {
    fail(ExitCode::usage, "--min {:g} is not below --max {:g}", options.low, options.high);
  }
  double factor = 1;
  const std::vector<RatePoint> points = losses_by_rate(options, factor);
  if (points.size() < 10) {
    fail(ExitCode::diverged,
         "the loss grows from the first steps on: take a smaller --min than {:g}", options.low);
  }
  std::vector<double> losses;
  for (const RatePoint& point : points) losses.push_back(point.smooth);
  fmt::print("smoothed loss at rates from {:.1e} to {:.1e} (logarithmic):\n{}\n",
             points.front().rate, points.back().rate, plot(losses, {.utf8 = console().utf8()}));
  const auto least = std::ranges::min_element(points, {}, &RatePoint::smooth);
  double first = 0;
  for (size_t i = 0; i < 10; ++i) first += points[i].smooth / 10;
  // The steepest descent per decade. So that noise does not decide, it is taken over five steps,
  // and not before the last point where less than a tenth of the whole fall is behind.
  const double fallen = first - 0.1 * (first - least->smooth);
  size_t steepest = 0;
  double most = 0;
  for (size_t i = 5; i < points.size() && points[i].rate <= least->rate; ++i) {
    const double slope = points[i - 5].smooth - points[i].smooth;
    if (points[i].smooth > fallen) {
      most = 0;
    } else if (slope > most) {
      most = slope, steepest = i - 2;
    }
  }
  if (steepest == 0 || least->smooth > 0.95 * first) {
    const bool diverged = std::cmp_less(points.size(), options.steps);
    fmt::print("the loss falls at no rate by 5 %; {}, or see `dltrain check`\n",
               !diverged                     ? "take a larger --max or more --steps"
               : least - points.begin() < 10 ? "take a smaller --min"
                                             : "train longer (--steps)");
    return ExitCode::ok;
  }
  const bool edge = least + 1 == points.end();
  fmt::print("it falls fastest at {:.1e} and is least at {:.1e}{}\n", points[steepest].rate,
             least->rate, edge ? ", the last rate: a larger --max may be better" : "");
  const double choice = std::min(points[steepest].rate, least->rate / 3);
  fmt::print(
      "try: -s optimizer.learning_rate={:.1e}{}\n", choice / factor,
      factor == 1 ? "" : fmt::format("  (optimizer.scale_learning_rate makes it {:.1e})", choice));
  return ExitCode::ok;
}

}  // namespace

CommandBody add_lr_find(CLI::App& command) {
  auto options = std::make_shared<LrFindOptions>();
  options->config.add_to(command, ConfigOptions::Use::model);
  add_number(command, "--min", options->low, 1e-12, 1e6, "The first rate (default: 1e-6)");
  add_number(command, "--max", options->high, 1e-12, 1e6, "The last rate (default: 1)");
  add_number(command, "--steps", options->steps, 20, 100000, "Training steps (default: 100)");
  return [options] { return find_rate(*options); };
}

}  // namespace dltrain

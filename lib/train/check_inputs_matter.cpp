// Training on the real inputs must reach a lower loss than training on inputs that are all zero,
// which can only learn how the targets are distributed. Each step sees new samples, so that
// learning them by heart does not count.
//
// Some sound models, such as masked language models, first learn that distribution alone, and look
// at their inputs later. So what 100 steps do not show is tried again with more of them, as many as
// the time and the data allow. Both trainings see the same batches: a model that ignores its inputs
// has the very same losses in both.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "data/loader.h"
#include "train/checks_support.h"

namespace dltrain {
namespace {

constexpr int64_t kSamples = 64, kFewestSamples = 8;
constexpr int kSteps = 100, kMostSteps = 1000;
constexpr int kMostVisits = 3;   // of a sample: few enough that it is not learnt by heart
constexpr int kTail = 5;         // the last of so many parts: the steps whose losses are averaged
constexpr double kShare = 0.98;  // of the loss with zeroed inputs
constexpr double kSame = 1e-6;   // relative difference of losses that are the same

struct Losses {
  std::vector<double> steps;
  int64_t dataset = 0;  // samples

  double tail() const {
    const size_t count = steps.size() / kTail;
    double sum = 0;
    for (size_t i = steps.size() - count; i < steps.size(); ++i) sum += steps[i];
    return sum / static_cast<double>(count);
  }
};

Losses train_briefly(const CheckOptions& options, int64_t samples, int steps, bool zeroed) {
  const auto run = prepare(options, samples, DType::f32);
  Session& session = run->session;
  TrainLoader loader(session.data.train, train_loader_options(session, 0, 0),
                     session.executor->device());
  OneBatch state = first_batch(session);
  Losses out{.steps = {}, .dataset = session.data.train->size()};
  for (int step = 0; step < steps; ++step) {
    const Batch& batch = loader.next();
    for (size_t field = 0; zeroed && field + 1 < batch.fields.size(); ++field) {
      const StepGraph& graph = session.executor->training();
      std::fill_n(batch.fields[field], graph.graph.value(graph.slots[field]).spec.bytes(),
                  std::byte{0});
    }
    state.inputs.step = step;
    state.inputs.inverse_valid = batch.loss_divisor > 0 ? 1 / batch.loss_divisor : 0;
    session.executor->micro_step(batch.fields, state.inputs, 0);
    const double loss = read_numbers(*session.executor, "metric.loss")[0];
    out.steps.push_back(loss * state.inputs.inverse_valid);
    session.executor->update(state.inputs);
    session.executor->collect();
  }
  return out;
}

struct Comparison {
  Losses real, zeroed;

  bool lower() const { return real.tail() < kShare * zeroed.tail(); }
  bool same() const {
    for (size_t i = 0; i < real.steps.size(); ++i) {
      const double difference = std::abs(real.steps[i] - zeroed.steps[i]);
      if (!(difference <= kSame * std::abs(zeroed.steps[i]))) return false;
    }
    return true;
  }
  std::string told() const {
    return fmt::format("loss {:.4f} after {} steps, {:.4f} with zeroed inputs", real.tail(),
                       real.steps.size(), zeroed.tail());
  }
};

Comparison compare(const CheckOptions& options, int64_t samples, int steps) {
  Comparison out;
  out.real = train_briefly(options, samples, steps, false);
  out.zeroed = train_briefly(options, samples, steps, true);
  return out;
}

}  // namespace

CheckResult check_inputs_matter(const CheckOptions& options, int64_t samples) {
  samples = samples_in_time(options, std::min(samples, kSamples), kFewestSamples, 2 * kSteps);
  if (samples == 0) {
    return skipped(
        fmt::format("{} steps on {} samples take longer than {:.0f} s; check a smaller "
                    "model of the same layers",
                    2 * kSteps, kFewestSamples, options.most_seconds));
  }
  const auto started = std::chrono::steady_clock::now();
  Comparison found = compare(options, samples, kSteps);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  const std::string expected = fmt::format("; expected below {:.0f} % of that", 100 * kShare);
  if (found.lower()) return pass_if(true, found.told() + expected);
  if (found.same()) return pass_if(false, found.told() + ": the inputs change nothing");

  const auto in_data = static_cast<double>(kMostVisits * found.real.dataset / samples);
  const double in_time = kSteps * (options.most_seconds - seconds) / seconds;
  const double wanted = std::min<double>(kMostSteps, std::max<double>(in_data, kSteps));
  const int steps = static_cast<int>(std::min(wanted, in_time));
  if (steps > kSteps) found = compare(options, samples, steps);
  if (found.lower() || steps >= wanted) return pass_if(found.lower(), found.told() + expected);
  return skipped(fmt::format(
      "{}, which is undecided: more steps take longer than {:.0f} s; check a smaller model of the "
      "same layers",
      found.told(), options.most_seconds));
}

}  // namespace dltrain

// Training on the real inputs must reach a lower loss than training on inputs that are all zero,
// which can only learn how the targets are distributed. Each step sees new samples, so that
// learning them by heart does not count.
#include <algorithm>

#include "base/error.h"
#include "data/loader.h"
#include "train/checks_support.h"

namespace dltrain {
namespace {

constexpr int64_t kSamples = 64, kFewestSamples = 8;
constexpr int kSteps = 100;
constexpr int kTail = 20;        // steps at the end whose losses are averaged
constexpr double kShare = 0.98;  // of the loss with zeroed inputs

double train_briefly(const CheckOptions& options, int64_t samples, bool zeroed) {
  const auto run = prepare(options, samples, DType::f32);
  Session& session = run->session;
  TrainLoader loader(session.data.train, train_loader_options(session, 0, 0),
                     session.executor->device());
  OneBatch state = first_batch(session);
  double sum = 0;
  for (int step = 0; step < kSteps; ++step) {
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
    if (step >= kSteps - kTail) sum += loss * state.inputs.inverse_valid;
    session.executor->update(state.inputs);
    session.executor->collect();
  }
  return sum / kTail;
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
  const double real = train_briefly(options, samples, false);
  const double zeroed = train_briefly(options, samples, true);
  return pass_if(
      real < kShare * zeroed,
      fmt::format("loss {:.4f} after {} steps, {:.4f} with zeroed inputs; expected below "
                  "{:.0f} % of that",
                  real, kSteps, zeroed, 100 * kShare));
}

}  // namespace dltrain

// A model that cannot learn one batch by heart cannot learn.
#include <algorithm>

#include "base/error.h"
#include "train/checks_support.h"

namespace dltrain {
namespace {

constexpr int64_t kOverfitSamples = 32;
constexpr int kOverfitSteps = 300;
constexpr double kOverfitRatio = 0.1;  // final loss against the first
constexpr double kSureRatio = 0.5;     // enough where every answer is right (smoothed targets keep
                                       // the loss up)

// The share of right answers in the batch that was run; 0 where the loss does not count them.
double share_right(Session& session, const OneBatch& batch) {
  if (session.executor->layout().find("metric.accuracy") == nullptr || batch.valid == 0) return 0;
  return read_numbers(*session.executor, "metric.accuracy")[0] / batch.valid;
}

}  // namespace

CheckResult check_overfit(const CheckOptions& options, int64_t samples) {
  samples = samples_in_time(options, std::min(samples, kOverfitSamples), 1, kOverfitSteps);
  if (samples == 0) {
    return skipped(
        fmt::format("{} steps on one sample take longer than {:.0f} s; check a smaller "
                    "model of the same layers",
                    kOverfitSteps, options.most_seconds));
  }
  const auto run = prepare(options, samples, DType::f32);
  OneBatch batch = first_batch(run->session);
  double first = 0, loss = 0;
  int step = 0;
  for (; step < kOverfitSteps; ++step) {
    batch.inputs.step = step;
    loss = run_batch(run->session, batch);
    if (step == 0) first = loss;
    if (loss <= kOverfitRatio * first) break;
    run->session.executor->update(batch.inputs);
    run->session.executor->collect();
  }
  const double right = share_right(run->session, batch);
  const bool all_right = right == 1 && loss <= kSureRatio * first;
  return pass_if(
      loss <= kOverfitRatio * first || all_right,
      fmt::format("loss {:.4f} → {:.4f} in {} steps on {} samples{}; expected below "
                  "{:.4f} within {}",
                  first, loss, step, run->session.batch.micro_batch,
                  all_right ? ", every answer right" : "", kOverfitRatio * first, kOverfitSteps));
}

}  // namespace dltrain

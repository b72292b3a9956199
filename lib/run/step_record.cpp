#include "run/step_record.h"

namespace dltrain {
namespace {

void add_sources(StepRecord& record, const Session& session, const StepReport& report,
                 size_t first_sum) {
  const SourceMix* mix = session.data.train->sources();
  if (mix == nullptr) return;
  const auto epochs = mix->epochs(session.position_at(record.step).cursor);
  const bool has_losses = session.executor->training().has_sources();
  for (size_t k = 0; k < epochs.size(); ++k) {
    const std::string& name = mix->sources()[k].name;
    // The loss of a source without targets in this step is absent.
    if (const double* sums = report.sums.data() + first_sum + 2 * k; has_losses && sums[1] > 0) {
      record.metrics.emplace_back(name + "_loss", sums[0] / sums[1]);
    }
    record.metrics.emplace_back(name + "_epochs", epochs[k]);
  }
}

}  // namespace

StepRecord record_step(const Session& session, const StepReport& report, double loss, double valid,
                       const StepMark& last, const StepMark& now) {
  const double elapsed =
      std::chrono::duration<double>(now.time - last.time).count() - (now.beside - last.beside);
  const auto steps = static_cast<double>(now.step - last.step);
  StepRecord record{
      .step = now.step,
      .epoch = session.epoch(now.step),
      .loss = loss,
      .metrics = {},
      .learning_rate = session.learning_rate(report.step),
      .grad_norm = report.results.grad_norm,
      .samples_per_second = steps * static_cast<double>(session.batch.global_batch) / elapsed,
      .step_ms = 1e3 * elapsed / steps,
      .data_wait_ms = 1e3 * (now.wait - last.wait) / steps,
      .tokens_seen = now.tokens,
      .tokens_per_second = static_cast<double>(now.tokens - last.tokens) / elapsed};
  const auto& metrics = session.executor->training().metrics;
  size_t means = 1;
  for (; means < metrics.size() && metrics[means].is_mean(); ++means) {
    record.metrics.emplace_back(metrics[means].label, report.sums[means] / valid);
  }
  add_sources(record, session, report, means);
  for (auto& share : fp8_shares(metrics, report.sums)) record.metrics.push_back(std::move(share));
  RouterReport routers = report_routers(router_sums(metrics, report.sums));
  record.metrics.insert(record.metrics.end(), routers.values.begin(), routers.values.end());
  record.expert_load = std::move(routers.load);
  return record;
}

}  // namespace dltrain

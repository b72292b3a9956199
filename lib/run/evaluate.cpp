#include <chrono>

#include "run/trainer.h"
#include "runtime/host_reduce.h"

namespace dltrain {

std::optional<EvaluationRecord> evaluate(Session& session, int64_t step, const StopCheck& stop) {
  const auto started = std::chrono::steady_clock::now();
  EvalLoader loader(session.data.eval, session.batch.micro_batch, session.coordinates.data.index,
                    session.coordinates.data.count, session.executor->device(),
                    session.experiment->evaluation.samples, session.eval_targets,
                    loader_workers(session, *session.data.eval));
  loader.start();
  double valid = 0, divisor = 0;
  bool first = true, stopped = false;
  while (const Batch* batch = loader.next()) {
    if ((stopped = stop && stop())) break;
    if (session.counts_targets()) {
      valid += static_cast<double>(batch->valid_targets);
      divisor += batch->loss_divisor;
    }
    session.executor->evaluate(batch->fields, batch->position, first);
    first = false;
  }
  // Waits for the device, which may still read what the loader holds.
  std::vector<double> sums = session.executor->evaluation_sums();
  if (stopped) return std::nullopt;
  sums.insert(sums.end(), {valid, divisor});
  static const auto subject = std::make_shared<const std::string>("sums of the evaluation");
  reduce_on_host(session.evaluation_ranks(), std::span(sums), ReduceOp::sum, subject);
  std::vector<SummedMetric> metrics;
  const double* at = sums.data();
  for (const StepMetric& metric : session.executor->evaluation_metrics()) {
    metrics.push_back({metric.label, {at, at + metric.size}});
    at += metric.size;
  }
  MetricReport report =
      finish_metrics(session.metrics, session.target_kind, metrics, /*valid=*/at[0]);
  EvaluationRecord record{.step = step,
                          .samples = loader.samples(),
                          .metrics = {{"loss", sums[0] / at[1]}},  // NaN where nothing counts
                          .classes = std::move(report.classes)};
  record.metrics.insert(record.metrics.end(), report.values.begin(), report.values.end());
  RouterReport routers = report_routers(router_sums(session.executor->evaluation_metrics(), sums));
  record.metrics.insert(record.metrics.end(), routers.values.begin(), routers.values.end());
  record.expert_load = std::move(routers.load);
  record.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return record;
}

}  // namespace dltrain

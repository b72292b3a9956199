#include <chrono>

#include "config/suggest.h"
#include "run/trainer.h"
#include "runtime/host_reduce.h"

namespace dltrain {
namespace {

// The data of an evaluation, or one of its sources.
struct EvalPart {
  std::string prefix;  // of the names of its metrics
  std::shared_ptr<const Dataset> data;
};

std::vector<EvalPart> parts_of(const std::shared_ptr<const Dataset>& data) {
  const SourceMix* mix = data->sources();
  if (mix == nullptr) return {{"", data}};
  std::vector<EvalPart> parts;
  for (size_t k = 0; k < mix->sources().size(); ++k) {
    const DataSource& source = mix->sources()[k];
    parts.push_back({source.name + "_", slice(data, mix->begin_of(k), source.samples)});
  }
  return parts;
}

// The bytes of text of each token for bits_per_byte; empty without this metric.
std::vector<uint32_t> bytes_of_tokens(const Session& session) {
  std::vector<uint32_t> bytes;
  if (!contains(session.metrics, kBitsPerByte)) return bytes;
  const auto tokenizer = session.data.eval->tokenizer();
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    const size_t size = tokenizer->is_special(id) ? 0 : tokenizer->bytes_of(id).size();
    bytes.push_back(static_cast<uint32_t>(size));
  }
  return bytes;
}

double text_bytes(const Session& session, const Batch& batch, const std::vector<uint32_t>& bytes) {
  if (bytes.empty()) return 0;
  const FieldSpec& targets = session.data.eval->fields().back();
  const auto* ids = reinterpret_cast<const int32_t*>(batch.fields.back());
  const int64_t count = session.batch.micro_batch * targets.sample.shape.elements();
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<size_t>(ids[i]);  // kIgnoredLabel becomes a large number
    if (id < bytes.size()) sum += bytes[id];
  }
  return sum;
}

// Adds the loss and the metrics of these sums.
void add_metrics(const Session& session, std::span<const double> sums, const std::string& prefix,
                 EvaluationRecord& record) {
  std::vector<SummedMetric> metrics;
  const double* at = sums.data();
  for (const StepMetric& metric : session.executor->evaluation_metrics()) {
    metrics.push_back({metric.label, {at, at + metric.size}});
    at += metric.size;
  }
  const double valid = at[0], divisor = at[1];
  metrics.push_back({kTextBytes, {at[2]}});
  MetricReport report = finish_metrics(session.metrics, session.target_kind, metrics, valid);
  record.metrics.emplace_back(prefix + "loss", sums[0] / divisor);  // NaN where nothing counts
  for (auto& [label, value] : report.values) record.metrics.emplace_back(prefix + label, value);
  if (prefix.empty()) record.classes = std::move(report.classes);
}

}  // namespace

std::optional<EvaluationRecord> evaluate(Session& session, int64_t step, const StopCheck& stop) {
  const auto started = std::chrono::steady_clock::now();
  const std::vector<EvalPart> parts = parts_of(session.data.eval);
  const std::vector<uint32_t> bytes_of = bytes_of_tokens(session);
  EvaluationRecord record;
  record.step = step;
  std::vector<double> all;  // sums of each part
  for (const EvalPart& part : parts) {
    EvalLoader loader(part.data, session.batch.micro_batch, session.coordinates.data.index,
                      session.coordinates.data.count, session.executor->device(),
                      session.experiment->evaluation.samples, session.eval_targets,
                      loader_workers(session, *part.data));
    loader.start();
    double valid = 0, divisor = 0, bytes = 0;
    bool first = true, stopped = false;
    while (const Batch* batch = loader.next()) {
      if ((stopped = stop && stop())) break;
      if (session.counts_targets()) {
        valid += static_cast<double>(batch->valid_targets);
        divisor += batch->loss_divisor;
        bytes += text_bytes(session, *batch, bytes_of);
      }
      session.executor->evaluate(batch->fields, batch->position, first);
      first = false;
    }
    // Waits for the device, which may still read what the loader holds.
    const std::vector<double> sums = session.executor->evaluation_sums();
    if (stopped) return std::nullopt;
    record.samples += loader.samples();
    all.insert(all.end(), sums.begin(), sums.end());
    all.insert(all.end(), {valid, divisor, bytes});
  }
  static const auto subject = std::make_shared<const std::string>("sums of the evaluation");
  reduce_on_host(session.evaluation_ranks(), std::span(all), ReduceOp::sum, subject);
  const size_t size = all.size() / parts.size();
  std::vector<double> total(size);
  for (size_t i = 0; i < all.size(); ++i) total[i % size] += all[i];
  add_metrics(session, total, "", record);
  RouterReport routers = report_routers(router_sums(session.executor->evaluation_metrics(), total));
  record.metrics.insert(record.metrics.end(), routers.values.begin(), routers.values.end());
  record.expert_load = std::move(routers.load);
  for (size_t k = 0; k < parts.size() && !parts[k].prefix.empty(); ++k) {
    add_metrics(session, std::span(all).subspan(k * size, size), parts[k].prefix, record);
  }
  record.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return record;
}

}  // namespace dltrain

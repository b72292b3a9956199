#include "run/predict.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace dltrain {
namespace {

// Lower bounds that keep logarithms finite.
constexpr float kMin = 1e-30f, kMinBinary = 1e-7f;
constexpr int64_t kMaxNumbers = int64_t{1} << 30;  // 4 GiB

bool is_over_classes(TargetKind kind) {
  return kind == TargetKind::labels || kind == TargetKind::distributions;
}

void softmax(std::span<float> row) {
  const float greatest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float& x : row) {
    x = std::exp(x - greatest);
    sum += x;
  }
  for (float& x : row) x = static_cast<float>(x / sum);
}

// Converts outputs of the model to predictions, in place.
void to_predictions(TargetKind kind, std::span<float> row) {
  if (is_over_classes(kind)) return softmax(row);
  if (kind != TargetKind::binary) return;
  for (float& x : row) x = 1 / (1 + std::exp(-x));
}

// Converts predictions back to outputs for the loss.
void to_outputs(TargetKind kind, std::span<float> row) {
  for (float& x : row) {
    if (is_over_classes(kind)) {
      x = std::log(std::max(x, kMin));
    } else if (kind == TargetKind::binary) {
      const float p = std::clamp(x, kMinBinary, 1 - kMinBinary);
      x = std::log(p / (1 - p));
    }
  }
}

// A dataset with the targets of another one, whose only input are the predictions.
class PredictedDataset final : public Dataset {
 public:
  PredictedDataset(std::shared_ptr<const Dataset> of, Predictions predictions, const Shape& output)
      : whole_(std::move(of)),
        predictions_(std::move(predictions)),
        fields_{{"output", {output, DType::f32}}, whole_->fields().back()} {}

  int64_t size() const override { return predictions_.samples; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override {
    if (field == 1) return whole_->read(whole_->target_field(), samples, first, out);
    const auto width = static_cast<size_t>(predictions_.width);
    std::vector<float> row(width);
    for (int64_t sample : samples) {
      const float* from = predictions_.values.data() + static_cast<size_t>(sample) * width;
      row.assign(from, from + width);
      to_outputs(predictions_.kind, row);
      std::memcpy(out, row.data(), width * sizeof(float));
      out += width * sizeof(float);
    }
  }
  std::optional<int64_t> uniform_valid_targets() const override {
    return whole_->uniform_valid_targets();
  }
  int64_t label_bound() const override { return whole_->label_bound(); }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return whole_->tokenizer(); }
  std::string location_of(int64_t sample) const override { return whole_->location_of(sample); }

 private:
  std::shared_ptr<const Dataset> whole_;
  Predictions predictions_;
  std::vector<FieldSpec> fields_;
};

}  // namespace

Predictions predict(const Session& session, std::optional<int64_t> limit, const StopCheck& stop) {
  const int64_t batch_size = session.batch.micro_batch;
  const Shape& output = session.executor->training().output_spec.shape;
  Predictions out{.kind = session.target_kind};
  out.width = output.elements() / batch_size;
  if (is_over_classes(out.kind)) out.classes = output[-1];
  const int64_t samples = std::min(session.data.eval->size(), limit.value_or(INT64_MAX));
  if (samples > kMaxNumbers / out.width) {
    fail(ExitCode::memory,
         "{} samples with {} numbers each are more than predictions can hold ({}); --samples takes "
         "the first ones",
         samples, out.width, kMaxNumbers);
  }
  EvalLoader loader(session.data.eval, batch_size, 0, 1, session.executor->device(), limit,
                    session.eval_targets);
  loader.start();
  bool first = true;
  while (const Batch* batch = loader.next()) {
    if (stop && stop()) return {};
    session.executor->evaluate(batch->fields, batch->position, first);
    first = false;
    const std::vector<double> values = session.executor->evaluation_output();
    std::transform(values.begin(), values.begin() + batch->samples * out.width,
                   std::back_inserter(out.values), [](double x) { return static_cast<float>(x); });
    out.samples += batch->samples;
  }
  const auto width = static_cast<size_t>(out.classes > 0 ? out.classes : out.width);
  for (size_t at = 0; at < out.values.size(); at += width) {
    to_predictions(out.kind, std::span(out.values).subspan(at, width));
  }
  return out;
}

void MeanPredictions::add(const Predictions& member) {
  if (members_ == 0) {
    first_ = {member.kind, member.samples, member.width, member.classes, {}};
    sums_.assign(member.values.size(), 0.0);
  } else if (member.kind != first_.kind || member.samples != first_.samples ||
             member.width != first_.width) {
    fail(ExitCode::usage,
         "an ensemble needs predictions of the same kind: {} numbers for each of {} samples, and "
         "{} for each of {}",
         first_.width, first_.samples, member.width, member.samples);
  }
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += member.values[i];
  ++members_;
}

Predictions MeanPredictions::mean() const {
  Predictions out = first_;
  out.values.resize(sums_.size());
  for (size_t i = 0; i < sums_.size(); ++i) {
    out.values[i] = static_cast<float>(sums_[i] / static_cast<double>(members_));
  }
  return out;
}

EvaluationRecord evaluate_predictions(const Session& session, const Predictions& predictions,
                                      int64_t step) {
  const TensorSpec& output = session.executor->training().output_spec;
  const Shape sample(output.shape.dims().subspan(1));
  // A model without layers, whose output is its input.
  const ModelConfig nothing;
  Session scoring;
  scoring.experiment = session.experiment;
  scoring.options = session.options;
  scoring.options.ranks.collectives = nullptr;
  scoring.batch = session.batch;
  scoring.data.train = session.data.train;
  scoring.target_info = session.target_info;
  scoring.metrics = session.metrics;
  scoring.target_kind = session.target_kind;
  scoring.eval_targets = session.eval_targets;
  scoring.data.eval = std::make_shared<PredictedDataset>(session.data.eval, predictions, sample);
  const FieldSpec& target = scoring.data.eval->fields().back();
  const StepRequest request{
      .model = nothing,
      .loss = *session.experiment->loss,
      .optimizer = *session.experiment->optimizer,
      .inputs = {{"output", {sample, DType::f32}}},
      .targets = {.sample = target.sample, .label_counts = session.target_info.label_counts},
      .metrics = session.metrics,
      .micro_batch = session.batch.micro_batch};
  const Engine* engine = session.options.engines.cpu;
  StepGraph graph = build_evaluation_graph(request);
  scoring.executor = std::make_unique<Executor>(
      ExecutorOptions{.engine = engine, .device = engine->open(0)}, std::vector{graph}, graph);
  scoring.executor->allocate();
  return *evaluate(scoring, step);
}

}  // namespace dltrain

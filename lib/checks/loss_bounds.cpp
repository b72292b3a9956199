#include "checks/loss_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace dltrain {
namespace {

// Evaluates the loss of outputs on the targets of one batch.
class LossOfOutputs {
 public:
  LossOfOutputs(const Engine& engine, const Session& session, const OneBatch& batch)
      : shape_(session.executor->training().output_spec.shape),
        inverse_valid_(batch.inputs.inverse_valid),
        targets_(batch.fields.back()) {
    const StepGraph& training = session.executor->training();
    if (training.graph.value(training.targets()).spec.dtype == DType::f32) widen();
    // A model without layers, whose output is its input.
    const ModelConfig nothing;
    TargetInfo targets = session.target_info;
    targets.mixed = false;  // as they are
    targets.sources = 0;
    const StepGraph graph = build_evaluation_graph(
        {.model = nothing,
         .loss = *session.experiment->loss,
         .optimizer = *session.experiment->optimizer,
         .inputs = {{"output", {Shape(shape_.dims().subspan(1)), DType::f32}}},
         .targets = targets,
         .micro_batch = shape_[0],
         .compute = DType::f64,
         .fuse = false});
    executor_ = std::make_unique<Executor>(
        ExecutorOptions{.engine = &engine, .device = engine.open(0)}, std::vector{graph}, graph);
    executor_->allocate();
  }

  double operator()(const std::vector<double>& outputs) {
    const std::byte* fields[] = {std::as_bytes(std::span(outputs)).data(), targets_.data()};
    executor_->evaluate(fields, 0, /*first=*/true);
    return executor_->evaluation_sums()[0] * inverse_valid_;
  }

  const Shape& shape() const { return shape_; }
  const int32_t* labels() const { return reinterpret_cast<const int32_t*>(targets_.data()); }
  const double* numbers() const { return reinterpret_cast<const double*>(targets_.data()); }

 private:
  void widen() {
    std::vector<float> narrow(targets_.size() / sizeof(float));
    std::memcpy(narrow.data(), targets_.data(), targets_.size());
    const std::vector<double> wide(narrow.begin(), narrow.end());
    const auto bytes = std::as_bytes(std::span(wide));
    targets_.assign(bytes.begin(), bytes.end());
  }

  Shape shape_;
  double inverse_valid_ = 0;
  std::vector<std::byte> targets_;  // i32 or f64
  std::unique_ptr<Executor> executor_;
};

// Returns, for each output, the mean of its targets that count.
std::vector<double> mean_targets(const double* targets, const Shape& shape) {
  const auto outputs = static_cast<size_t>(shape.elements() / shape[0]);
  std::vector<double> means(static_cast<size_t>(shape.elements()));
  for (size_t o = 0; o < outputs; ++o) {
    double sum = 0, count = 0;
    for (size_t i = o; i < means.size(); i += outputs) {
      if (std::isnan(targets[i])) continue;
      sum += targets[i];
      count += 1;
    }
    for (size_t i = o; i < means.size(); i += outputs) means[i] = count > 0 ? sum / count : 0;
  }
  return means;
}

constexpr double kStep = 0.05;       // of the way to the targets
constexpr double kMinShare = 1e-12;  // of a class or an answer: logarithms stay finite

double log_share(double share) {
  return std::log(std::max(share, kMinShare));
}

// Returns outputs that predict the targets. With `firmness` 1 they are the logits of target
// distributions, with more they are more confident. For numbers they are the targets.
std::vector<double> outputs_that_know(const LossOfOutputs& loss, TargetKind kind, double firmness) {
  const auto elements = static_cast<size_t>(loss.shape().elements());
  const auto classes = static_cast<size_t>(loss.shape()[-1]);
  std::vector<double> out(elements, 0.0);
  switch (kind) {
    case TargetKind::labels:
      // Log probabilities, for which the penalty z_loss is 0.
      for (size_t row = 0; row < elements / classes; ++row) {
        const int32_t label = loss.labels()[row];
        if (label < 0) continue;
        const double others = static_cast<double>(classes - 1);
        const double all = firmness + std::log1p(others * std::exp(-firmness));
        for (size_t k = 0; k < classes; ++k) {
          out[row * classes + k] = (static_cast<int32_t>(k) == label ? firmness : 0) - all;
        }
      }
      break;
    case TargetKind::distributions:
      for (size_t i = 0; i < elements; ++i) out[i] = firmness * log_share(loss.numbers()[i]);
      break;
    case TargetKind::binary:
      for (size_t i = 0; i < elements; ++i) {
        const double t = loss.numbers()[i];
        if (!std::isnan(t)) out[i] = firmness * (log_share(t) - log_share(1 - t));
      }
      break;
    case TargetKind::numbers:
      for (size_t i = 0; i < elements; ++i) {
        if (!std::isnan(loss.numbers()[i])) out[i] = loss.numbers()[i];
      }
      break;
  }
  return out;
}

// Returns constant outputs: the mean targets of the batch.
std::vector<double> constant_outputs(const LossOfOutputs& loss, TargetKind kind) {
  const auto elements = static_cast<size_t>(loss.shape().elements());
  const auto classes = static_cast<size_t>(loss.shape()[-1]);
  std::vector<double> out;
  if (kind == TargetKind::labels) {
    std::vector<double> share(classes, 0.0);
    double counted = 0;
    for (size_t row = 0; row < elements / classes; ++row) {
      const int32_t label = loss.labels()[row];
      if (label < 0 || static_cast<size_t>(label) >= classes) continue;
      share[static_cast<size_t>(label)] += 1;
      counted += 1;
    }
    out.resize(elements);
    for (size_t i = 0; i < elements; ++i) {
      out[i] = counted > 0 ? log_share(share[i % classes] / counted) : 0;
    }
    return out;
  }
  out = mean_targets(loss.numbers(), loss.shape());
  for (double& value : out) {
    if (kind == TargetKind::distributions) value = log_share(value);
    if (kind == TargetKind::binary) value = log_share(value) - log_share(1 - value);
  }
  return out;
}

// Returns the minimum of a unimodal function by golden-section search.
template <typename F>
double least_within(double low, double high, const F& f) {
  constexpr double kGolden = 0.6180339887498949;
  constexpr int kSections = 24;  // narrows the range to 1e-5 of it
  double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
  double at_a = f(a), at_b = f(b);
  double least = std::min({f(low), f(high), at_a, at_b});
  for (int i = 0; i < kSections; ++i) {
    if (at_a < at_b) {
      high = b;
      b = a;
      at_b = at_a;
      at_a = f(a = high - kGolden * (high - low));
    } else {
      low = a;
      a = b;
      at_a = at_b;
      at_b = f(b = low + kGolden * (high - low));
    }
    least = std::min({least, at_a, at_b});
  }
  return least;
}

double lowest_loss(LossOfOutputs& loss, TargetKind kind, double uninformed) {
  constexpr double kSure = 30;          // of a label: the others have 1e-13
  constexpr double kSmallShare = 1e-6;  // of the uninformed loss: nothing keeps it up
  const auto at = [&](double firmness) { return loss(outputs_that_know(loss, kind, firmness)); };
  if (kind == TargetKind::numbers) return at(1);
  const double first = kind == TargetKind::labels ? kSure : 1;
  const double sure = at(first);
  if (sure <= kSmallShare * uninformed) return sure;
  // With a temperature the best logits are that many times larger.
  return std::min(sure, least_within(0, kSure, at));
}

}  // namespace

LossBounds loss_bounds(const Engine& reference, const Session& session, const OneBatch& batch,
                       bool lowest) {
  LossOfOutputs loss(reference, session, batch);
  const TargetKind kind = session.experiment->loss->target_kind(session.target_info);
  const auto elements = static_cast<size_t>(loss.shape().elements());
  const std::vector<double> neutral = kind == TargetKind::numbers
                                          ? mean_targets(loss.numbers(), loss.shape())
                                          : std::vector<double>(elements, 0.0);
  std::vector<double> nearer = outputs_that_know(loss, kind, 1);
  for (size_t i = 0; i < elements; ++i) nearer[i] = neutral[i] + kStep * (nearer[i] - neutral[i]);
  LossBounds out;
  out.uninformed = loss(neutral);
  out.step_nearer = loss(nearer);
  out.constant = loss(constant_outputs(loss, kind));
  if (lowest) out.lowest = lowest_loss(loss, kind, out.uninformed);
  return out;
}

}  // namespace dltrain

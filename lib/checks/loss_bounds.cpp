#include "checks/loss_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "runtime/loaded_program.h"

namespace dltrain {
namespace {

// Evaluates the loss of outputs on the targets of one batch.
class LossOfOutputs {
 public:
  LossOfOutputs(const Engine& engine, const Session& session, const OneBatch& batch)
      : device_(engine.open(0)), stream_(device_->make_stream()) {
    const StepGraph& training = session.executor->training();
    shape_ = training.output_spec.shape;
    inverse_valid_ = batch.inputs.inverse_valid;
    const TensorSpec spec = training.graph.value(training.targets()).spec;
    targets_ = batch.fields.back();
    if (spec.dtype == DType::f32) widen();
    GraphBuilder builder(graph_);
    LayerContext context(builder, /*training=*/false, DType::f64, /*ghost_groups=*/1);
    output_ = builder.add_value("output", {shape_, DType::f64}, Role::input);
    const DType dtype = spec.dtype == DType::i32 ? DType::i32 : DType::f64;
    const ValueId targets = builder.add_value("targets", {spec.shape, dtype}, Role::input);
    const LossOutput emitted =
        session.experiment->loss->emit(context, output_, targets, session.target_info);
    builder.accumulate(builder.emit1("identity", {emitted.loss_sum}), "loss", Role::metric);
    builder.step_state();
    layout_.add(graph_);
    program_.emplace(graph_, ProgramOptions{.engine = &engine, .device = device_.get()});
    state_ = Buffer(*device_, layout_.bytes());
    work_ = Buffer(*device_, program_->program().work_bytes());
    program_->load(
        [this](const GraphValue& value) { return state_.data() + layout_.offset_of(value); },
        work_.data());
    targets_value_ = targets;
  }

  double operator()(const std::vector<double>& outputs) {
    // Copies both inputs, because a program reuses the memory of inputs that it has read.
    program_->write(targets_value_, std::span<const std::byte>(targets_), *stream_);
    program_->write(output_, std::span<const double>(outputs), *stream_);
    program_->frame().run(Phase::forward, MicroStep::only, *stream_);
    double sum = 0;
    device_->copy(&sum, state_.data() + layout_.find("loss")->offset, sizeof sum, *stream_);
    stream_->synchronize();
    return sum * inverse_valid_;
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

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Shape shape_;
  double inverse_valid_ = 0;
  std::vector<std::byte> targets_;  // i32 or f64
  Graph graph_;
  ValueId output_ = kNoValue, targets_value_ = kNoValue;
  std::optional<LoadedProgram> program_;
  StateLayout layout_;
  Buffer state_, work_;
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

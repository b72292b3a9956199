// The loss of the untrained model. Against classes it should be that of an answer without opinion
// (all logits equal: −log(1/N) for N classes); against numbers not far above that of the best
// constant answer.
#include <cmath>

#include "base/error.h"
#include "graph/plan.h"
#include "train/checks_support.h"

namespace dltrain {
namespace {

constexpr double kClassTolerance = 0.25;  // standard initialisers stay well within
constexpr double kNumberFactor = 10;      // times the loss of the best constant answer

// The loss of given outputs on the batch's targets, in float64 on the reference engine.
double loss_of(const CheckOptions& options, Session& session, const OneBatch& batch,
               const std::vector<double>& outputs) {
  const StepGraph& training = session.executor->training();
  const Loss& loss = *session.experiment->loss;
  Graph graph;
  GraphBuilder builder(graph);
  LayerContext context(builder, /*training=*/false, DType::f64, /*ghost_groups=*/1);
  const ValueId output =
      builder.add_value("output", {training.output_spec.shape, DType::f64}, Role::input);
  TensorSpec target_spec = training.graph.value(training.targets()).spec;
  std::vector<double> numbers;
  if (is_floating(target_spec.dtype)) {
    target_spec.dtype = DType::f64;
    numbers = target_numbers(session, batch);
  }
  const ValueId targets = builder.add_value("targets", target_spec, Role::input);
  const LossOutput emitted = loss.emit(context, output, targets, session.target_info);
  builder.accumulate(builder.emit1("identity", {emitted.loss_sum}), "loss", Role::metric);
  builder.step_state();

  const auto device = options.engines.reference->open(0);
  const auto stream = device->make_stream();
  Plan plan = Plan::prepare(graph, {.engine = options.engines.reference, .device = device.get()});
  StateLayout layout;
  layout.add(graph);
  const Buffer state(*device, layout.bytes()), work(*device, plan.work_bytes());
  plan.bind(layout, state.data(), work.data());
  const auto put = [&](ValueId value, const void* bytes) {
    device->copy(plan.address(value), bytes, graph.value(value).spec.bytes(), *stream);
  };
  put(output, outputs.data());
  if (numbers.empty()) {
    put(targets, batch.fields.back().data());
  } else {
    put(targets, numbers.data());
  }
  plan.run(Phase::forward, MicroStep::only, *stream);
  double sum = 0;
  device->copy(&sum, state.data() + layout.find("loss")->offset, sizeof sum, *stream);
  stream->synchronize();
  return sum * batch.inputs.inverse_valid;
}

// For each output the mean of its targets that count.
std::vector<double> mean_targets(const std::vector<double>& targets, const Shape& shape) {
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

}  // namespace

CheckResult check_initial_loss(const CheckOptions& options, int64_t samples) {
  // Of a distillation the loss of the data's targets: nobody knows what a teacher's should be.
  const auto run = prepare_forward(options, samples, samples, {}, /*teacher=*/false);
  Session& session = run->session;
  const OneBatch batch = first_batch(session);
  const double loss = run_forward(session, batch);
  const Shape& shape = session.executor->training().output_spec.shape;
  if (session.experiment->loss->target_kind(session.target_info) == TargetKind::numbers) {
    const double best =
        loss_of(options, session, batch, mean_targets(target_numbers(session, batch), shape));
    return pass_if(loss <= kNumberFactor * best,
                   fmt::format("{:.4g}; the best constant answer has {:.4g}, expected at most {:g} "
                               "times that{}",
                               loss, best, kNumberFactor,
                               loss <= kNumberFactor * best
                                   ? ""
                                   : " (scale the targets, or set the bias of the last layer)"));
  }
  const std::vector<double> zeros(static_cast<size_t>(shape.elements()), 0.0);
  const double expected = loss_of(options, session, batch, zeros);
  const int64_t classes =
      session.experiment->loss->classes(session.executor->training().output_spec);
  // The entropy of target distributions is part of neither, so it may be near 0 there.
  const double scale = std::max(expected, std::log(2.0));
  // A last bias from the data knows how often each class occurs: then less is right too.
  const bool informed = session.experiment->model.final_bias_from_data && loss < expected;
  return pass_if(informed || std::abs(loss - expected) <= kClassTolerance * scale,
                 fmt::format("{:.4f}; {} = {:.4f}, tolerance {:.0f} %", loss,
                             classes > 0 ? fmt::format("−log(1/{})", classes)
                                         : std::string("that of equal logits"),
                             expected, 100 * kClassTolerance));
}

}  // namespace dltrain

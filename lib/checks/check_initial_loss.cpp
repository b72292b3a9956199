// Checks the loss of the model before training. For classes it should be that of equal logits
// (−log(1/N) for N classes), for numbers not far above that of the best constant output.
//
// An untrained model prefers some class by chance, so its loss on a few samples, or on data with a
// frequent class, says more about these than about the model. Samples therefore get each class in
// turn, unless the model starts from the frequencies or from trained weights, whose loss may be
// lower, or the loss weighs the classes.
#include <algorithm>
#include <cmath>
#include <span>

#include "checks/checks_support.h"
#include "checks/loss_bounds.h"
#include "run/data_advice.h"

namespace dltrain {
namespace {

constexpr double kClassTolerance = 0.25;  // standard initialisers stay well within
constexpr double kNumberFactor = 10;      // times the loss of the best constant answer

template <typename Number>
void replace_labels(std::vector<std::byte>& bytes, int64_t classes, int64_t shift) {
  const std::span labels(reinterpret_cast<Number*>(bytes.data()), bytes.size() / sizeof(Number));
  for (size_t i = 0; i < labels.size(); ++i) {
    const bool counts = labels[i] >= Number{0};  // neither kIgnoredLabel nor NaN
    if (counts) labels[i] = static_cast<Number>((static_cast<int64_t>(i) + shift) % classes);
  }
}

// The mean loss where each sample has had several classes, evenly.
double loss_of_each_class(Session& session, OneBatch batch, int64_t classes) {
  constexpr int64_t kMostRuns = 16;
  constexpr double kManyTargets = 256;
  const Graph& graph = session.executor->training().graph;
  const DType dtype = graph.value(session.executor->training().targets()).spec.dtype;
  const auto wanted = static_cast<int64_t>(std::ceil(kManyTargets / std::max(batch.valid, 1.0)));
  const int64_t runs = std::min({classes, kMostRuns, wanted});
  double sum = 0;
  for (int64_t run = 0; run < runs; ++run) {
    const int64_t shift = run * (classes / runs);
    if (dtype == DType::i32) replace_labels<int32_t>(batch.fields.back(), classes, shift);
    if (dtype == DType::f32) replace_labels<float>(batch.fields.back(), classes, shift);
    if (dtype == DType::f64) replace_labels<double>(batch.fields.back(), classes, shift);
    sum += run_forward(session, batch);
  }
  return sum / static_cast<double>(runs);
}

}  // namespace

CheckResult check_initial_loss(const CheckOptions& options, int64_t samples) {
  // For distillation the hard loss is checked, because the expected loss of a teacher is unknown.
  const auto run = prepare_forward(options, samples, samples, {.teacher = false});
  Session& session = run->session;
  const OneBatch batch = first_batch(session);
  double loss = run_forward(session, batch);
  const double expected =
      loss_bounds(*options.engines.reference, session, batch, /*lowest=*/false).uninformed;
  if (session.experiment->loss->target_kind(session.target_info) == TargetKind::numbers) {
    const bool passes = loss <= kNumberFactor * expected;
    const std::string inputs = passes ? "" : large_inputs(session);
    return pass_if(
        passes, "{:.4g}; the best constant answer has {:.4g}, expected at most {:g} times that{}",
        loss, expected, kNumberFactor,
        passes           ? ""
        : inputs.empty() ? " (scale the targets, or set the bias of the last layer)"
                         : " (" + inputs + ")");
  }
  const TargetKind kind = session.experiment->loss->target_kind(session.target_info);
  const int64_t classes =
      session.experiment->loss->classes(session.executor->training().output_spec);
  const bool trained = session.experiment->model.init_from.has_value();
  const bool informed = trained || session.experiment->model.final_bias_from_data;
  const bool weighted = std::abs(batch.inputs.inverse_valid * batch.valid - 1) > 1e-6;
  const int64_t of_labels = kind == TargetKind::binary   ? 2
                            : kind == TargetKind::labels ? classes
                                                         : 0;
  if (!informed && !weighted && of_labels > 1) {
    loss = loss_of_each_class(session, batch, of_labels);
  }
  // Both losses may be near 0 for target distributions, whose entropy is not included.
  const double scale = std::max(expected, std::log(2.0));
  if (informed && loss < expected) {
    return pass_if(true, "{:.4f}, below {:.4f} because of {}", loss, expected,
                   trained ? "the weights of model.init_from" : "model.final_bias_from_data");
  }
  const bool passes = std::abs(loss - expected) <= kClassTolerance * scale;
  const std::string inputs = passes || loss < expected ? "" : large_inputs(session);
  return pass_if(
      passes, "{:.4f}; {} = {:.4f}, tolerance {:.0f} %{}", loss,
      classes > 0 ? fmt::format("−log(1/{})", classes) : std::string("that of equal logits"),
      expected, 100 * kClassTolerance, inputs.empty() ? "" : "; " + inputs);
}

}  // namespace dltrain

// Checks the loss of the untrained model. For classes it should be that of equal logits (−log(1/N)
// for N classes), for numbers not far above that of the best constant output.
#include <cmath>

#include "base/error.h"
#include "checks/checks_support.h"
#include "checks/loss_bounds.h"
#include "run/advice.h"

namespace dltrain {
namespace {

constexpr double kClassTolerance = 0.25;  // standard initialisers stay well within
constexpr double kNumberFactor = 10;      // times the loss of the best constant answer

}  // namespace

CheckResult check_initial_loss(const CheckOptions& options, int64_t samples) {
  // For distillation the hard loss is checked, because the expected loss of a teacher is unknown.
  const auto run = prepare_forward(options, samples, samples, {.teacher = false});
  Session& session = run->session;
  const OneBatch batch = first_batch(session);
  const double loss = run_forward(session, batch);
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
  const int64_t classes =
      session.experiment->loss->classes(session.executor->training().output_spec);
  // Both losses may be near 0 for target distributions, whose entropy is not included.
  const double scale = std::max(expected, std::log(2.0));
  // A final bias from the data may give a lower loss.
  const bool informed = session.experiment->model.final_bias_from_data && loss < expected;
  const bool passes = informed || std::abs(loss - expected) <= kClassTolerance * scale;
  const std::string inputs = passes || loss < expected ? "" : large_inputs(session);
  return pass_if(
      passes, "{:.4f}; {} = {:.4f}, tolerance {:.0f} %{}", loss,
      classes > 0 ? fmt::format("−log(1/{})", classes) : std::string("that of equal logits"),
      expected, 100 * kClassTolerance, inputs.empty() ? "" : "; " + inputs);
}

}  // namespace dltrain

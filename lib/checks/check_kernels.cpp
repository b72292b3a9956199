// The gradients by the kernels of the run's device against those of the reference engine in
// float64: kernels of plug-ins, and those of hardware on which they have not run before.
#include <algorithm>
#include <cmath>
#include <map>

#include "checks/checks_support.h"

namespace dltrain {
namespace {

// Returns the tolerance as a share of the norm of a gradient, or of the floor. Rounding may also
// switch a maximum; a wrong kernel is off by much more.
double kernel_tolerance(DType compute) {
  return is_low_precision(compute) ? 1e-1 : 1e-2;
}
constexpr double kKernelFloor = 1e-3;  // of the greatest norm: tensors without effect are noise

std::map<std::string, std::vector<double>> gradients_of_batch(Session& session) {
  run_batch(session, first_batch(session));
  const double scale = session.first_loss_scale();
  std::map<std::string, std::vector<double>> out;
  for (const ParameterInfo& info : session.executor->training().parameters) {
    const StateTensor* state = session.executor->layout().find(info.name, Role::gradient);
    if (state == nullptr) continue;
    std::vector<double>& values = out[info.name];
    values = read_numbers(*session.executor, state->name);
    for (double& value : values) value /= scale;
  }
  return out;
}

double norm(const std::vector<double>& values) {
  double squares = 0;
  for (double value : values) squares += value * value;
  return std::sqrt(squares);
}

}  // namespace

CheckResult check_kernels(const CheckOptions& options, int64_t samples) {
  const CheckSetup setup{.noise = false, .fp8 = false};
  samples = std::min<int64_t>(samples, 4);
  const auto exact = prepare_exact(options, samples, setup);
  if (!exact) return out_of_time("float64 takes too long");
  const auto run = prepare(options, samples, DType::f32, setup);
  const auto expected = gradients_of_batch(exact->session),
             found = gradients_of_batch(run->session);
  double greatest = 0, worst = 0;
  for (const auto& [name, values] : expected) greatest = std::max(greatest, norm(values));
  std::string worst_name;
  for (const auto& [name, values] : expected) {
    std::vector<double> difference = found.at(name);
    for (size_t i = 0; i < difference.size(); ++i) difference[i] -= values[i];
    const double error = norm(difference) / std::max(norm(values), kKernelFloor * greatest);
    if (error <= worst || std::isnan(worst)) continue;
    worst = error;
    worst_name = name;
  }
  const DType compute = run->experiment.precision.compute;
  const double tolerance = kernel_tolerance(compute);
  return pass_if(worst <= tolerance,
                 "gradients of {} parameters by {} in {} differ by at most {:.1e} of their norm "
                 "({}) from those in float64, tolerance {:.0e}",
                 expected.size(), run->session.executor->device().properties().name,
                 dtype_name(compute), worst, worst_name.empty() ? "none" : worst_name, tolerance);
}

}  // namespace dltrain

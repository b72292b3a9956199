// Parameters that no gradient reaches, or whose gradient is zero throughout. A few steps are tried:
// where a layer starts as zeros, those before it have no gradient in the first.
#include <algorithm>
#include <set>

#include "checks/checks_support.h"
#include "config/suggest.h"

namespace dltrain {
namespace {

constexpr int kCheckUnusedParametersSteps = 3;

// The parameters that have a gradient, but only one of zeros in every step.
std::set<std::string> always_zero(Session& session) {
  Executor& executor = *session.executor;
  std::set<std::string> names;
  for (const ParameterInfo& info : executor.training().parameters) {
    if (executor.layout().find(info.name, Role::gradient) != nullptr) names.insert(info.name);
  }
  OneBatch batch = first_batch(session);
  for (int step = 0; step < kCheckUnusedParametersSteps && !names.empty(); ++step) {
    batch.inputs.step = step;
    run_batch(session, batch);
    std::erase_if(names, [&](const std::string& name) {
      const auto gradient =
          read_numbers(executor, executor.layout().find(name, Role::gradient)->name);
      return std::any_of(gradient.begin(), gradient.end(), [](double g) { return g != 0; });
    });
    executor.update();
    executor.collect();
  }
  return names;
}

}  // namespace

CheckResult check_unused_parameters(const CheckOptions& options, int64_t samples) {
  const auto run = prepare(options, samples, DType::f32);
  const StepGraph& graph = run->session.executor->training();
  const std::vector<std::string>& unreached = graph.unused;
  const std::set<std::string> zero = always_zero(run->session);
  const auto parameters =
      std::ranges::count(graph.parameters, Role::parameter, &ParameterInfo::role);
  if (unreached.empty() && zero.empty()) {
    return pass_if(true, "each of the {} parameters has a gradient", parameters);
  }
  std::vector<std::string> names = unreached;
  names.insert(names.end(), zero.begin(), zero.end());
  std::vector<std::string> what;
  if (!unreached.empty()) what.push_back(fmt::format("{} do not reach the loss", unreached.size()));
  if (!zero.empty()) what.push_back(fmt::format("{} have a gradient of zeros", zero.size()));
  return pass_if(false, "of {} parameters {}: {}", parameters, fmt::join(what, ", "),
                 some_names(names));
}

}  // namespace dltrain

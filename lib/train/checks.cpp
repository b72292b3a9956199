#include "train/checks.h"

#include <algorithm>

#include "base/error.h"
#include "train/checks_support.h"

namespace dltrain {
namespace {

struct CheckRow {
  const char* name;
  CheckResult (*run)(const CheckOptions& options, int64_t samples);
};

// Cheap ones first.
constexpr CheckRow kChecks[] = {
    {"data and targets", check_data},       {"unused parameters", check_unused_parameters},
    {"loss at init", check_initial_loss},   {"dead activations", check_dead_activations},
    {"target leak", check_target_leak},     {"samples are independent", check_sample_independence},
    {"gradient check", check_gradient},     {"overfit one batch", check_overfit},
    {"inputs matter", check_inputs_matter}, {"resume is bit-exact", check_resume},
};

}  // namespace

std::vector<CheckResult> run_checks(const CheckOptions& options) {
  std::vector<CheckResult> results;
  const auto add = [&](CheckResult result) {
    if (options.on_result) options.on_result(result);
    results.push_back(std::move(result));
  };
  int64_t samples = 0;
  {
    Experiment experiment = options.load({"parallelism.data=1"});
    const Session session = open_session(experiment, {.engines = options.engines});
    samples = std::min<int64_t>(session.batch.micro_batch, session.data.train->size());
    add({"configuration", CheckOutcome::pass,
         fmt::format("{} training samples, {} for evaluation", session.data.train->size(),
                     session.has_evaluation() ? session.data.eval->size() : 0)});
  }
  for (const CheckRow& check : kChecks) {
    CheckResult result;
    try {
      result = check.run(options, samples);
    } catch (const Error& error) {
      result = {{}, CheckOutcome::fail, error.what()};
    }
    result.name = check.name;
    add(std::move(result));
  }
  return results;
}

}  // namespace dltrain

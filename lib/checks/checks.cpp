#include "checks/checks.h"

#include <algorithm>
#include <new>

#include "checks/checks_support.h"
#include "checks/suggestions.h"

namespace dltrain {
namespace {

struct CheckRow {
  const char* name;
  CheckResult (*run)(const CheckOptions& options, int64_t samples);
};

// Cheap ones first.
constexpr CheckRow kChecks[] = {
    {"data and targets", check_data},
    {"unused parameters", check_unused_parameters},
    {"loss at init", check_initial_loss},
    {"dead activations", check_dead_activations},
    {"target leak", check_target_leak},
    {"samples are independent", check_sample_independence},
    {"dead experts", check_dead_experts},
    {"gradient check", check_gradient},
    {"kernels", check_kernels},
    {"overfit one batch", check_overfit},
    {"inputs matter", check_inputs_matter},
    {"update sizes", check_update_sizes},
    {"resume is bit-exact", check_resume},
};

// Batch norm has no statistics of one vector.
int64_t fewest_samples(const Session& session) {
  const Graph& graph = session.executor->training().graph;
  const bool two = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    if (!node.op->mixes_samples) return false;
    const Shape& x = graph.value(node.inputs[0]).spec.shape;
    return x.elements() / x[-1] == session.batch.micro_batch;
  });
  return two ? 2 : 1;
}

CheckResult run_check(const CheckRow& check, const CheckOptions& options, int64_t samples) {
  try {
    return check.run(options, samples);
  } catch (const Error& error) {
    if (error.code() == ExitCode::data) return pass_if(false, "{}", error.what());
    // The configuration was right before the check changed it.
    const bool ours = error.code() == ExitCode::usage;
    return {{}, CheckOutcome::error, error.what(), ours ? ExitCode::internal : error.code()};
  } catch (const std::bad_alloc&) {
    return {{}, CheckOutcome::error, "out of memory", ExitCode::memory};
  } catch (const std::exception& error) {
    return {{}, CheckOutcome::error, error.what(), ExitCode::internal};
  }
}

}  // namespace

std::vector<CheckResult> run_checks(CheckOptions options) {
  std::vector<CheckResult> results;
  const auto add = [&](CheckResult result) {
    if (options.on_result) options.on_result(result);
    results.push_back(std::move(result));
  };
  int64_t samples = 0;
  bool has_experts = false;
  {
    Experiment experiment = options.load(one_rank_overrides());
    accumulate_on_one_rank(experiment.training);
    Suggestions suggestions;
    const Session session =
        open_session(experiment, {.engines = options.engines, .probe = suggestions.probe()});
    samples = std::min<int64_t>(session.batch.micro_batch, session.data.train->size());
    options.fewest_samples = fewest_samples(session);
    has_experts = std::ranges::any_of(session.executor->training().metrics,
                                      [](const StepMetric& m) { return m.router.has_value(); });
    add({"configuration", CheckOutcome::pass,
         fmt::format("{} training samples, {} for evaluation", session.data.train->size(),
                     session.has_evaluation() ? session.data.eval->size() : 0)});
    for (std::string& sentence : suggestions.of(session)) {
      add({"advice", CheckOutcome::note, std::move(sentence)});
    }
  }
  for (const CheckRow& check : kChecks) {
    if (check.run == check_dead_experts && !has_experts) continue;
    CheckResult result = run_check(check, options, samples);
    result.name = check.name;
    add(std::move(result));
  }
  return results;
}

}  // namespace dltrain

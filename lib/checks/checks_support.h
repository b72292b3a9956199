// Common parts of the checks: an experiment on one batch, and the functions that checks.cpp lists.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checks/checks.h"
#include "run/session.h"

namespace dltrain {

// The first micro-batch of the training order, in the compute type of the session.
struct OneBatch {
  std::vector<std::vector<std::byte>> fields;  // in the order of StepGraph::slots
  StepInputs inputs{};
  double valid = 0;  // targets that count

  std::vector<const std::byte*> addresses() const;
};

OneBatch first_batch(Session& session);

// Forward and backward of the batch as an only micro-step; returns the mean loss.
double run_batch(Session& session, const OneBatch& batch);
// The forward alone.
double run_forward(Session& session, const OneBatch& batch);

// The routers of the last run (nn/routers.h).
std::vector<RouterSums> read_routers(Session& session);

struct Prepared {
  Experiment experiment;
  Session session;
};

// The settings in which the experiment of a check differs from the configuration.
struct CheckSetup {
  GraphProbe probe = {};
  bool teacher = true;                // false: the loss without its teacher
  bool noise = true;                  // false: no dropout, samples are not mixed
  bool augment = true;                // false: samples without random changes
  bool evaluate_train_split = false;  // compile the model in evaluation too (Executor::evaluate)
  bool start = true;                  // false: compiled only, nothing is allocated
  bool fp8 = true;                    // false: without precision.fp8
};

// Opens an experiment whose global batch is one micro-batch of `samples`. In f64 it runs unfused on
// the reference engine.
std::unique_ptr<Prepared> prepare(const CheckOptions& options, int64_t samples, DType compute,
                                  const CheckSetup& how = {});
// The same in f64 with `samples`, or as few as a batch may have, which are then in `samples`;
// nullptr if that exceeds CheckOptions::most_exact_flops.
std::unique_ptr<Prepared> prepare_exact(const CheckOptions& options, int64_t& samples,
                                        const CheckSetup& how = {});
// For checks that run only forwards: in f64 if CheckOptions::most_exact_flops allows it, with fewer
// samples (at least `fewest`) if that helps, and otherwise in f32 on the engine of the run.
std::unique_ptr<Prepared> prepare_forward(const CheckOptions& options, int64_t samples,
                                          int64_t fewest, const CheckSetup& how = {});

// Returns the number of samples, at most `most`, with which so many training steps in f32 end
// within CheckOptions::most_seconds, estimated from the time of one step; 0 if it is less than
// `fewest`.
int64_t samples_in_time(const CheckOptions& options, int64_t most, int64_t fewest, int steps,
                        const CheckSetup& how = {});

// A state tensor of floating type as doubles.
std::vector<double> read_numbers(Executor& executor, const std::string& name);

template <typename... Args>
CheckResult pass_if(bool condition, fmt::format_string<Args...> detail, Args&&... args) {
  return {{},
          condition ? CheckOutcome::pass : CheckOutcome::fail,
          fmt::format(detail, std::forward<Args>(args)...)};
}
template <typename... Args>
CheckResult skipped(fmt::format_string<Args...> why, Args&&... args) {
  return {{}, CheckOutcome::skip, fmt::format(why, std::forward<Args>(args)...)};
}
// The result of a check for which CheckOptions::most_seconds is too short.
template <typename... Args>
CheckResult out_of_time(fmt::format_string<Args...> why, Args&&... args) {
  return skipped("{}; --time allows more, or check a smaller model of the same layers",
                 fmt::format(why, std::forward<Args>(args)...));
}

// `samples`: the micro-batch of the configuration, at most the size of the data.
CheckResult check_data(const CheckOptions& options, int64_t samples);
CheckResult check_initial_loss(const CheckOptions& options, int64_t samples);
CheckResult check_gradient(const CheckOptions& options, int64_t samples);
CheckResult check_overfit(const CheckOptions& options, int64_t samples);
CheckResult check_inputs_matter(const CheckOptions& options, int64_t samples);
CheckResult check_target_leak(const CheckOptions& options, int64_t samples);
CheckResult check_sample_independence(const CheckOptions& options, int64_t samples);
CheckResult check_unused_parameters(const CheckOptions& options, int64_t samples);
CheckResult check_dead_activations(const CheckOptions& options, int64_t samples);
// For models with experts.
CheckResult check_dead_experts(const CheckOptions& options, int64_t samples);
CheckResult check_kernels(const CheckOptions& options, int64_t samples);
CheckResult check_update_sizes(const CheckOptions& options, int64_t samples);
CheckResult check_resume(const CheckOptions& options, int64_t samples);

}  // namespace dltrain

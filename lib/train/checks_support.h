// What the checks share: an experiment of their own on one batch, and the checks themselves, which
// checks.cpp lists.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/checks.h"
#include "train/session.h"

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

struct Prepared {
  Experiment experiment;
  Session session;
};

// What an experiment of a check is made of, where it is not that of the configuration.
struct CheckSetup {
  GraphProbe probe = {};
  bool teacher = true;                // false: the loss goes without its teacher
  bool noise = true;                  // false: no dropout, samples are not mixed
  bool evaluate_train_split = false;  // the model in evaluation is there too (Executor::evaluate)
};

// An experiment of its own whose global batch is one micro-batch of `samples`, compiled; nothing is
// allocated. In f64 it runs unfused on the reference engine.
std::unique_ptr<Prepared> compile_only(const CheckOptions& options, int64_t samples, DType compute,
                                       const CheckSetup& how = {});
// The same, initialised.
std::unique_ptr<Prepared> prepare(const CheckOptions& options, int64_t samples, DType compute,
                                  const CheckSetup& how = {});

// For checks that run forwards alone: in f64 where CheckOptions::most_exact_flops allows, with
// fewer samples (`fewest` at least) where that helps, and otherwise in f32 on the engine of the
// run.
std::unique_ptr<Prepared> compile_forward(const CheckOptions& options, int64_t samples,
                                          int64_t fewest, const CheckSetup& how = {});
// The same, initialised.
std::unique_ptr<Prepared> prepare_forward(const CheckOptions& options, int64_t samples,
                                          int64_t fewest, const CheckSetup& how = {});

// On how many samples, `most` at most, so many training steps in f32 end within
// CheckOptions::most_seconds, by the time that one step takes; 0: on less than `fewest`.
int64_t samples_in_time(const CheckOptions& options, int64_t most, int64_t fewest, int steps,
                        const CheckSetup& how = {});

// A state tensor of floating type as doubles.
std::vector<double> read_numbers(Executor& executor, const std::string& name);

inline CheckResult pass_if(bool condition, std::string detail) {
  return {{}, condition ? CheckOutcome::pass : CheckOutcome::fail, std::move(detail)};
}
inline CheckResult skipped(std::string why) {
  return {{}, CheckOutcome::skip, std::move(why)};
}

// Of what CheckOptions::most_seconds do not suffice for.
inline CheckResult out_of_time(const std::string& why) {
  return skipped(why + "; --time allows more, or check a smaller model of the same layers");
}

// `samples`: of a micro-batch of the configuration, at most those of the data.
CheckResult check_data(const CheckOptions& options, int64_t samples);
CheckResult check_initial_loss(const CheckOptions& options, int64_t samples);
CheckResult check_gradient(const CheckOptions& options, int64_t samples);
CheckResult check_overfit(const CheckOptions& options, int64_t samples);
CheckResult check_inputs_matter(const CheckOptions& options, int64_t samples);
CheckResult check_target_leak(const CheckOptions& options, int64_t samples);
CheckResult check_sample_independence(const CheckOptions& options, int64_t samples);
CheckResult check_unused_parameters(const CheckOptions& options, int64_t samples);
CheckResult check_dead_activations(const CheckOptions& options, int64_t samples);
CheckResult check_resume(const CheckOptions& options, int64_t samples);

}  // namespace dltrain

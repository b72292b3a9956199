#include "experiment/training_config.h"

#include <algorithm>

namespace dltrain {
namespace {

// `metric` is a std::string or an optional one.
template <typename Metric>
void describe_metric(Fields& f, Metric& metric, std::optional<MetricMode>& mode,
                     const std::string& doc) {
  f.text("metric", metric, {.doc = doc, .known_as = {"monitor", "metric_for_best_model"}});
  f.choice("mode", mode,
           {{"min", MetricMode::min, "smaller is better"},
            {"max", MetricMode::max, "greater is better"}},
           {.doc = "Which values are better; absent: min for loss, errors and perplexity, max for "
                   "other metrics",
            .known_as = {"greater_is_better"}});
}

}  // namespace

int64_t largest_divisor(int64_t number, int64_t most) {
  int64_t divisor = std::min(number, most);
  while (number % divisor != 0) --divisor;
  return divisor;
}

void EarlyStoppingConfig::describe(Fields& f) {
  describe_metric(f, metric, mode, "The metric of the evaluations that must improve");
  f.integer("patience", patience,
            {.doc = "Consecutive evaluations without improvement after which the run ends",
             .required = true,
             .min = 1});
  f.number("min_delta", min_delta,
           {.doc = "An improvement must be greater than this",
            .min = 0,
            .known_as = {"threshold", "early_stopping_threshold"}});
}

MetricWatch EarlyStoppingConfig::watch(const MetricRecord& record) const {
  return {metric, mode.value_or(default_mode(metric)), min_delta, record};
}

void TrainingConfig::describe(Fields& f) {
  f.integer("global_batch_size", global_batch_size,
            {.doc = "Samples of one optimizer step, over all ranks and micro-batches",
             .min = 1,
             .max = 1e9,
             .known_as = {"batch_size", "train_batch_size", "per_device_train_batch_size"}});
  f.integer("micro_batch_size", micro_batch_size,
            {.doc = "Samples that one rank processes at a time; default: its share of the global "
                    "batch divided by gradient_accumulation_steps. `auto`: the largest number that "
                    "fits the memory by its plan; the global batch, and so the losses but for "
                    "rounding, stay. A resumed run keeps the number",
             .min = 1,
             .max = 1e9,
             .known_as = {"micro_batch"}});
  f.integer("gradient_accumulation_steps", gradient_accumulation_steps,
            {.doc = "Micro-batches of a rank in one step; follows from the other two",
             .min = 1,
             .max = 1e9,
             .known_as = {"accumulation_steps", "grad_accumulation"}});
  f.integer("max_steps", max_steps,
            {.doc = "Optimizer steps of the run",
             .min = 1,
             .max = 1e15,
             .known_as = {"steps", "iterations"}});
  f.number("num_epochs", num_epochs,
           {.doc = "Passes over the training data, rounded up to full steps",
            .max = 1e9,
            .above = 0,
            .known_as = {"epochs", "num_train_epochs"}});
  f.number(
      "max_time", max_time,
      {.doc = "Seconds after which the run stops with a checkpoint and exit code 75", .above = 0});
  UpdateConfig::describe(f);
  f.choice("on_non_finite", on_non_finite,
           {{"stop", OnNonFinite::stop, "end the run with exit code 4"},
            {"skip", OnNonFinite::skip, "skip the update and continue"}},
           {.doc = "What happens when a loss or gradient is not finite"});
  f.choice("reduction", reduction,
           {{"fast", Reduction::fast, "in the order of the layout of ranks and micro-steps"},
            {"fixed", Reduction::fixed,
             "as one binary tree over the micro-batches of the global batch: the same "
             "bits for every number of ranks and micro-steps at one micro_batch_size. "
             "Needs one more copy of the gradients for each doubling of the micro-steps "
             "of a rank"}},
           {.doc = "In which order the gradients of micro-batches are added, and statistics and "
                   "metrics with them",
            .known_as = {"deterministic_reduction"}});
  f.integer("verify_replicas", verify_replicas,
            {.doc = "Steps between comparisons of the parameters of all ranks that must have equal "
                    "ones, which are also compared before every checkpoint; where memory or a "
                    "device has changed them, the run ends with exit code 6 without saving. Needs "
                    "zero_stage: 0 and expert: 1",
             .min = 1,
             .max = 1e15});
  f.section("early_stopping", early_stopping,
            {.doc = "End the run, with exit code 0, when a metric of the evaluations has stopped "
                    "improving; `early_stopping: 5` means patience 5"});
}

void TrainingConfig::validate(Diagnostics& diagnostics) const {
  UpdateConfig::validate(diagnostics);
  if (!global_batch_size && !micro_batch_size) {
    diagnostics.add(location, "training needs global_batch_size");
  }
  if (chooses_micro_batch() && (!global_batch_size || gradient_accumulation_steps)) {
    diagnostics.add(*this, "micro_batch_size", "{}",
                    global_batch_size ? "auto chooses gradient_accumulation_steps too; leave it out"
                                      : "auto divides the global batch; give global_batch_size");
  }
  if (!max_steps && !num_epochs)
    diagnostics.add(location, "training needs max_steps or num_epochs");
  if (max_steps && num_epochs) {
    diagnostics.add(*this, "num_epochs", "max_steps and num_epochs are both given; keep one");
  }
  if (global_batch_size) check_division(*this, *global_batch_size, 1, "rank", diagnostics);
}

void CheckpointConfig::describe(Fields& f) {
  f.integer("save_steps", save_steps,
            {.doc = "Steps between checkpoints; absent: only by the other keys, at the end, and "
                    "after a signal (after SIGUSR1 training continues)",
             .min = 1,
             .known_as = {"save_every", "save_interval"}});
  f.number("save_epochs", save_epochs,
           {.doc = "Passes over the training data between checkpoints", .above = 0});
  f.number("save_minutes", save_minutes, {.doc = "Minutes between checkpoints", .above = 0});
  f.integer("save_total_limit", save_total_limit,
            {.doc = "Number of newest checkpoints that are kept; 0: all. `latest` and `best` are "
                    "always kept",
             .min = 0,
             .known_as = {"keep", "keep_last"}});
  f.integer("keep_every", keep_every,
            {.doc = "Checkpoints at multiples of this step are never removed", .min = 1});
  f.boolean("async", async,
            {.doc = "Write checkpoints in the background, from a snapshot in host memory"});
  describe_metric(f, metric, mode,
                  "The metric of the evaluations that selects the checkpoint `best`; absent: loss. "
                  "An evaluation that is better than all earlier ones saves a checkpoint");
}

MetricWatch CheckpointConfig::watch(const MetricRecord& record) const {
  const std::string watched = metric.value_or("loss");
  return {watched, mode.value_or(default_mode(watched)), 0, record};
}

void check_division(const TrainingConfig& t, int64_t global_batch, int64_t ranks,
                    const std::string& what, Diagnostics& diagnostics) {
  const int64_t micro = t.given_micro_batch().value_or(1), samples = global_batch / ranks;
  const int64_t steps = t.gradient_accumulation_steps.value_or(1);
  const auto refuse = [&](const char* key, int64_t value) {
    const std::string share = ranks == 1 ? "global_batch_size"
                                         : fmt::format("a rank's share of the batch ({} / {} {}s)",
                                                       global_batch, ranks, what);
    const int64_t above = (samples / value + 1) * value * ranks, below = above - value * ranks;
    diagnostics.add(
        t, key, "{0} {1} does not divide {2} {3}; {0} {4} would fit, or global_batch_size {5}{6}",
        key, value, share, samples, largest_divisor(samples, value),
        below > 0 ? fmt::format("{} or ", below) : "", above);
  };
  if (samples % micro != 0) {
    refuse("micro_batch_size", micro);
  } else if (samples % steps != 0) {
    refuse("gradient_accumulation_steps", steps);
  }
}

}  // namespace dltrain

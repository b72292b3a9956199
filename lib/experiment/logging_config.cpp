#include "experiment/logging_config.h"

namespace dltrain {

void StudyConfig::describe(Fields& f) {
  f.text("study", study, {.doc = "The study that the run belongs to"});
  f.text("goal", goal, {.doc = "What the run shall show"});
  f.text("notes", notes, {.doc = "Anything worth keeping"});
  f.texts("tags", tags, {.doc = "Words to find the run by", .scalar_ok = true});
}

void HooksConfig::describe(Fields& f) {
  f.text("checkpoint", checkpoint,
         {.doc = "Run after each saved checkpoint, with its folder in DLTRAIN_CHECKPOINT and "
                 "DLTRAIN_STEP"});
  f.text("evaluation", evaluation,
         {.doc = "Run after each evaluation, with its results as JSON in DLTRAIN_RESULT and "
                 "DLTRAIN_STEP"});
  f.text("end", end,
         {.doc = "Run when the run has ended or failed, with its exit code in DLTRAIN_EXIT_CODE"});
  f.number("timeout", timeout, {.doc = "Seconds after which a command is killed", .above = 0});
}

void WandbConfig::describe(Fields& f) {
  f.text("project", project, {.doc = "The project that the run belongs to", .required = true});
  f.text("entity", entity, {.doc = "User or team; absent: the default of the account"});
  f.choice("mode", mode, {{"offline", WandbMode::offline, "files that `wandb sync` uploads"}},
           {.doc = "dltrain writes files only; it sends nothing"});
}

void LoggingConfig::describe(Fields& f) {
  f.integer("logging_steps", logging_steps,
            {.doc = "Steps between lines of metrics.jsonl, of log.txt, and of the console "
                    "if it is not a terminal",
             .min = 1,
             .known_as = {"log_steps", "log_interval", "log_every"}});
  f.boolean("tensorboard", tensorboard,
            {.doc = "Write event files for TensorBoard into the folder tensorboard of the run: "
                    "scalars, the first training images, the configuration",
             .known_as = {"report_to"}});
  f.section("wandb", wandb,
            {.doc = "Write the run for Weights & Biases into the folder wandb of the run: "
                    "`wandb sync RUN/wandb/offline-run-…` uploads it; `wandb: NAME` gives the "
                    "project"});
  f.integer("histogram_steps", histogram_steps,
            {.doc = "Steps between histograms of all weights and gradients in TensorBoard; absent: "
                    "none",
             .min = 1});
  f.boolean("gradient_noise", gradient_noise,
            {.doc = "Log gradient_noise_scale, the noise of the gradient over its square, in "
                    "samples: an estimate of the batch above which larger ones save few steps. "
                    "Needs two micro-batches a step",
             .known_as = {"gradient_noise_scale", "noise_scale"}});
  f.text(
      "prometheus", prometheus,
      {.doc = "File that gets the newest values of metrics.jsonl in the format of Prometheus, at "
              "most once a second, for the textfile collector of node_exporter"});
}

void LoggingConfig::validate(Diagnostics& diagnostics) const {
  if (histogram_steps && !tensorboard) {
    diagnostics.add(*this, "histogram_steps", "histogram_steps needs tensorboard: true");
  }
}

}  // namespace dltrain

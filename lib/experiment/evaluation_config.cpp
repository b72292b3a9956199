#include "experiment/evaluation_config.h"

#include "config/suggest.h"
#include "nn/metrics.h"

namespace dltrain {

void EvaluationConfig::describe(Fields& f) {
  f.integer("eval_steps", eval_steps,
            {.doc = "Steps between evaluations; absent: only at the end",
             .min = 1,
             .known_as = {"eval_interval", "eval_every"}});
  f.number("eval_epochs", eval_epochs,
           {.doc = "Passes over the training data between evaluations", .above = 0});
  f.integer("samples", samples,
            {.doc = "Number of samples to evaluate, from the first; absent: all", .min = 1});
  f.integer("predictions", predictions,
            {.doc = "Number of samples, from the first of the eval split, whose predictions each "
                    "evaluation writes to predictions/step-….jsonl of the run; absent: none",
             .min = 1,
             .known_as = {"fixed_batch", "num_predictions"}});
  f.texts("metrics", metrics,
          {.doc = "Metrics besides the loss: accuracy, perplexity, bits_per_byte (text with a "
                  "tokenizer), top_K (top_5), precision, recall, f1, confusion; for numbers mae, "
                  "mse, rmse, r2; absent: those that suit the loss (for text accuracy, perplexity "
                  "and bits_per_byte)",
           .scalar_ok = true,
           .known_as = {"metric"}});
}

void EvaluationConfig::validate(Diagnostics& diagnostics) const {
  for (const std::string& name : metrics.value_or(std::vector<std::string>())) {
    const std::string problem = metric_name_problem(name);
    if (!problem.empty()) diagnostics.add(*this, "metrics", problem);
  }
}

void GenerationConfig::describe(Fields& f) {
  f.integer("sample_steps", sample_steps,
            {.doc = "Steps between samples; absent: only at the end",
             .min = 1,
             .known_as = {"every", "sample_every", "sample_interval"}});
  f.number("sample_epochs", sample_epochs,
           {.doc = "Passes over the training data between samples", .above = 0});
  f.texts("prompts", prompts,
          {.doc = "Texts that are continued, one sample each",
           .required = true,
           .min_size = 1,
           .scalar_ok = true,
           .known_as = {"prompt"}});
  f.integer("max_tokens", max_tokens,
            {.doc = "New tokens of a sample",
             .min = 1,
             .max = 1e6,
             .known_as = {"max_new_tokens", "max_length"}});
  f.number(
      "temperature", temperature,
      {.doc = "Logits are divided by it; 0: always the most likely token", .min = 0, .max = 1000});
  f.integer(
      "top_k", top_k,
      {.doc = "Draw from this number of likeliest tokens; 0: all", .min = 0, .max = INT32_MAX});
  f.number("top_p", top_p,
           {.doc = "Draw from the fewest likeliest tokens that together have this probability",
            .max = 1,
            .above = 0});
  f.number("repetition_penalty", repetition_penalty,
           {.doc = "Values above 1 make tokens that the text already has less likely",
            .max = 1000,
            .above = 0});
  f.integer("seed", seed, {.doc = "Seed of the draws; default: that of the run", .min = 0});
  f.texts("stop", stop, {.doc = "Texts that end a sample", .scalar_ok = true});
}

void GenerationConfig::validate(Diagnostics& diagnostics) const {
  if (!contains(stop, "")) return;
  diagnostics.add(*this, "stop", "an empty text would end every sample at once");
}

}  // namespace dltrain

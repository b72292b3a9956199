// The sections `evaluation` and `generation` of an experiment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"

namespace dltrain {

struct EvaluationConfig : ConfigObject {
  std::optional<int64_t> eval_steps;
  std::optional<double> eval_epochs;
  std::optional<int64_t> predictions;
  std::optional<int64_t> samples;
  std::optional<std::vector<std::string>> metrics;
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

// Texts that the model continues while it is trained.
struct GenerationConfig : ConfigObject {
  std::optional<int64_t> sample_steps;
  std::optional<double> sample_epochs;
  std::vector<std::string> prompts, stop;
  int64_t max_tokens = 128, top_k = 0;
  double temperature = 1, top_p = 1, repetition_penalty = 1;
  std::optional<int64_t> seed;
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

}  // namespace dltrain

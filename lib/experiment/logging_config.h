// The sections `experiment`, `logging` and `hooks` of an experiment: what is recorded of a run, and
// who is told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields.h"

namespace dltrain {

enum class WandbMode : uint8_t { offline };

// Files of Weights & Biases' offline mode (telemetry/wandb.h).
struct WandbConfig : ConfigObject {
  static constexpr std::string_view kBareKey = "project";
  std::string project, entity;
  WandbMode mode = WandbMode::offline;
  void describe(Fields& f);
};

struct LoggingConfig : ConfigObject {
  int64_t logging_steps = 10;
  bool tensorboard = false;
  std::optional<int64_t> histogram_steps;
  bool gradient_noise = false;  // run/gradient_noise.h
  std::string prometheus;       // telemetry/prometheus.h; "": none
  std::optional<WandbConfig> wandb;
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

// Why a run is made; `dltrain runs` shows it. Changes nothing in the run.
struct StudyConfig : ConfigObject {
  std::string study, goal, notes;
  std::vector<std::string> tags;
  void describe(Fields& f);
};

// Shell commands of the user (run/hooks.h); "": none.
struct HooksConfig : ConfigObject {
  std::string checkpoint, evaluation, end;
  double timeout = 600;  // s
  bool any() const { return !checkpoint.empty() || !evaluation.empty() || !end.empty(); }
  void describe(Fields& f);
};

}  // namespace dltrain

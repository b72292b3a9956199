// The configuration of a run. Everything that does not depend on the data or on shapes is validated
// here, with places.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"
#include "data/config.h"
#include "device/device.h"
#include "experiment/evaluation_config.h"
#include "experiment/logging_config.h"
#include "experiment/parallelism_config.h"
#include "experiment/sweep_config.h"
#include "experiment/training_config.h"
#include "nn/loss.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "passes/precision_config.h"
#include "passes/recompute.h"

namespace dltrain {

struct MemoryConfig : ConfigObject {
  Recompute recompute = Recompute::none;
  std::vector<std::string> keep_layers, recompute_layers;  // patterns (config/name_patterns.h)
  std::string budget = "device";                           // or bytes (base/memory.h)
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

struct Experiment : ConfigObject {
  std::string name = "run";
  std::optional<StudyConfig> experiment;
  int64_t seed = 0;
  std::string device = "auto";
  Autotune autotune = Autotune::off;
  ModelConfig model;
  std::unique_ptr<Loss> loss = make_kind(loss_table(), "cross_entropy");
  DataConfig data;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Schedule> lr_scheduler = make_kind(schedule_table(), "constant");
  TrainingConfig training;
  PrecisionConfig precision;
  MemoryConfig memory;
  ParallelismConfig parallelism;
  CheckpointConfig checkpoint;
  LoggingConfig logging;
  EvaluationConfig evaluation;
  std::optional<GenerationConfig> generation;
  std::optional<SweepConfig> sweep;
  HooksConfig hooks;
  std::vector<std::string> plugins;  // nn/plugin.h

  void describe(Fields& f);
  // Loads the plug-ins, whose layers and losses the keys may name.
  static bool rewrite(ConfigNode& map, Diagnostics& diagnostics);
  void validate(Diagnostics& diagnostics) const;

 private:
  void validate_shards(Diagnostics& diagnostics) const;
  void validate_narrow_parameters(Diagnostics& diagnostics) const;
  void validate_8bit_moments(Diagnostics& diagnostics) const;
  void validate_galore(Diagnostics& diagnostics) const;
  void validate_forward_gradient(Diagnostics& diagnostics) const;
  void validate_lora(Diagnostics& diagnostics) const;
};

}  // namespace dltrain

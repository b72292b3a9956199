// A small training whose steps are watched.
#pragma once

#include "config/load.h"
#include "cpu/engine.h"
#include "profile/recorder.h"
#include "reference/engine.h"
#include "run/session.h"
#include "run/trainer.h"

namespace dltrain {

// Two linear layers and dropout on fixed data: no files.
inline Experiment small_experiment(const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides{
      "model.layers=[{type: linear, out_features: 24}, {type: gelu}, {type: dropout, rate: 0.2}, "
      "{type: linear, out_features: 4}]",
      "data.train={type: synthetic, shape: [12], classes: 4, samples: 64}",
      "optimizer={type: adamw, learning_rate: 0.01}",
      "lr_scheduler={type: cosine, warmup_steps: 2}",
      "training={global_batch_size: 16, max_steps: 6, max_grad_norm: 1.0}",
      "device=cpu"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return load_config<Experiment>({.files = {}, .overrides = overrides});
}

inline Engines host_engines() {
  return {.cpu = &cpu_engine(), .reference = &reference_engine()};
}

}  // namespace dltrain

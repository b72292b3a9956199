// Short trainings for tests of what must not change the answer: fixed data, no files, eight steps.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "catch.h"
#include "config/load.h"
#include "cpu/engine.h"
#include "max_or_inf.h"
#include "reference/engine.h"
#include "run/session.h"
#include "run/trainer.h"

namespace dltrain {

struct ShortRun {
  std::vector<double> losses;
  std::vector<std::byte> state;  // parameters, buffers and moments
};

struct Variation {
  std::vector<std::string> overrides = {};
  bool fuse = true;
  DType compute = DType::f32;
  bool keep_gradients = false;
  int64_t in_flight = 1;
  RecomputeChoice recompute = {};  // of memory.recompute=auto
};

// Fixed data and layers, no files: eight steps of 16 samples.
inline ShortRun short_run(const std::string& layers, const Variation& variation) {
  std::vector<std::string> overrides{
      "model.layers=" + layers,
      "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 64}",
      "optimizer={type: adamw, learning_rate: 0.01}",
      "lr_scheduler={type: cosine, warmup_steps: 2}",
      "training={global_batch_size: 16, max_steps: 8, max_grad_norm: 1.0}",
      "logging.logging_steps=1",
      "device=cpu"};
  overrides.insert(overrides.end(), variation.overrides.begin(), variation.overrides.end());
  auto experiment = load_config<Experiment>({.files = {}, .overrides = overrides});
  Session session =
      open_session(experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()},
                                .compute = variation.compute,
                                .fuse = variation.fuse,
                                .recompute_choice = variation.recompute,
                                .keep_gradients = variation.keep_gradients,
                                .in_flight = variation.in_flight});
  start_session(session);
  ShortRun out;
  TrainEvents events;
  events.on_step = [&](const StepRecord& record) { out.losses.push_back(record.loss); };
  train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  out.state = session.executor->read_checkpointed();
  return out;
}

// The greatest relative distance of a loss of `a` from that of `b`.
inline double greatest_difference(const ShortRun& a, const ShortRun& b) {
  REQUIRE(a.losses.size() == 8);
  REQUIRE(b.losses.size() == 8);
  double most = 0;
  for (size_t i = 0; i < a.losses.size(); ++i) {
    most = max_or_inf(most, std::abs(a.losses[i] - b.losses[i]) / std::abs(b.losses[i]));
  }
  return most;
}

inline constexpr const char* kMlp = "[flatten, {linear: 24}, gelu, {dropout: 0.2}, {linear: 5}]";
inline constexpr const char* kConvnet =
    "[{conv2d: {out_channels: 4, kernel_size: 3, padding: 1}}, batch_norm, relu, {max_pool2d: 2}, "
    "flatten, {linear: 16}, tanh, {linear: 5}]";

}  // namespace dltrain

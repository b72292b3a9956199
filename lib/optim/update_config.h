// The keys of `training` for the update: frozen parameters, gradient clipping and averaged weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"

namespace dltrain {

// Clipping to a percentile of the norms of earlier updates (Seetharaman et al. 2020, AutoClip).
struct ClipPercentile : ConfigObject {
  double percentile = 90;
  int64_t window = 100;      // updates whose norms count
  int64_t min_history = 20;  // updates without clipping, until so many norms are known
  double factor = 1;         // the limit as a multiple of the percentile

  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

// Exponential moving average of the weights and running statistics; evaluation uses it.
struct EmaConfig : ConfigObject {
  double decay = 0.999;
  int64_t start_step = 0;  // applied updates before it: until then the average is the weights
  bool warmup = false;     // decay of update k is at most (1 + k) / (10 + k)

  void describe(Fields& f);
};

// The norm by which training.max_grad_norm clips: that of the step's own gradients, or that of the
// step before.
enum class ClipNorm : uint8_t { current, previous };

// Gradients are computed by the reverse pass, or estimated from forward-mode derivatives
// (graph/forward_gradient.h).
enum class GradientMode : uint8_t { reverse, forward };

struct UpdateConfig : ConfigObject {
  GradientMode gradient = GradientMode::reverse;
  std::optional<int64_t> directions;  // of GradientMode::forward
  std::vector<std::string> freeze;    // patterns of config/name_patterns.h
  std::optional<double> max_grad_norm, max_grad_value;
  ClipNorm clip_norm = ClipNorm::current;
  std::optional<ClipPercentile> clip_percentile;
  bool optimizer_in_backward = false;  // passes/optimizer_in_backward.h
  std::optional<EmaConfig> ema;

  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

}  // namespace dltrain

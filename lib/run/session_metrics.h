// The metrics of a session's evaluations.
#pragma once

#include "compile/step_graph.h"
#include "run/session.h"

namespace dltrain {

// Returns the metrics of evaluations. Throws ConfigError for metrics that do not suit the targets.
std::vector<std::string> choose_metrics(const Experiment& experiment, TargetKind kind,
                                        const StepGraph& graph, const Engine& engine,
                                        const Dataset& data);
// Throws ConfigError unless evaluations compute the metrics of early stopping and of the best
// checkpoint.
void check_metrics(const Experiment& experiment, const std::vector<std::string>& metrics,
                   const SourceMix* sources);

}  // namespace dltrain

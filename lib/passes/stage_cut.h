// Pipelines of two stages: the part of a training step that the rank of one stage runs. It has the
// nodes of its layers, their backward and update, and only their parameters and other state.
#pragma once

#include <string>

#include "graph/graph.h"

namespace dltrain {

struct StageCut {
  int stage = 0;       // 0 or 1: the place of the rank along the axis "pipeline"
  std::string second;  // path of the layer with which stage 1 begins
};

// Values that stage 1 reads of stage 0 are sent at the end of their production and received at the
// start of the forward, and gradients likewise backwards, in every micro-batch. Both ranks run the
// same schedule, so that their messages have one order. The gradient norm is that of all stages.
//
// Refused with Error(internal): state that both stages use (tied weights), collectives over tensors
// of both, and ZeRO. Precedes pack_updates.
Graph stage_cut(Graph graph, const StageCut& cut);

}  // namespace dltrain

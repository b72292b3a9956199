// The stages of a pipeline that run each node of a step and have each tensor of its state.
#pragma once

#include <bitset>
#include <vector>

#include "graph/graph.h"
#include "passes/stage_cut.h"

namespace dltrain {

// A set: bit s is stage s. The empty set means that no stage is known yet.
using Stages = std::bitset<kMostStages>;

Stages only(int stage);
// Returns the first stage of a set, or kMostStages.
int first_of(const Stages& stages);
bool is_one(const Stages& stages);

struct StageAssignment {
  std::vector<Stages> nodes;   // of the forward and backward, one stage each
  std::vector<Stages> owners;  // by value; only those of the storage of state are set

  // Returns the stage whose node produces a value in a phase; −1: none does. `nodes_of_step`: those
  // that were assigned.
  int made_on(const Graph& graph, const std::vector<Node>& nodes_of_step, ValueId id,
              Phase phase) const;
};

// Assigns the nodes of a step. Layers have the stages of `cut`; the backward and update follow what
// they read. Throws Error(usage) if layers of several stages use state that cannot be shared.
StageAssignment assign_stages(const Graph& graph, const StageCut& cut);

}  // namespace dltrain

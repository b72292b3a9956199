// The division of an experiment's batch and state over ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "experiment/experiment.h"

namespace dltrain {

// The division of the global batch over data-parallel ranks.
struct BatchLayout {
  int64_t global_batch = 0;
  int64_t micro_batch = 0;  // samples a rank computes at a time
  int64_t micro_steps = 0;  // accumulation: micro-batches of a rank in a step
  int64_t micro_batches() const { return global_batch / micro_batch; }
};

// Returns the layout of the batch on so many ranks in total. Throws ConfigError at a key that does
// not fit their number. A launcher calls it before it starts ranks.
BatchLayout check_ranks(const Experiment& experiment, int ranks);

// Overrides for a configuration that is used on one rank, such as that of a trained model.
const std::vector<std::string>& one_rank_overrides();
// For a configuration read with them: where all keys of the batch are given for more ranks, one
// rank makes the micro-steps of all of them.
void accumulate_on_one_rank(TrainingConfig& training);

// Returns the mesh of the ranks: pipeline × replica × shard × context × tensor. `ranks_per_node`
// (0: all ranks on one node) determines the groups of zero_shard_size: node; a size greater than
// the number of data-parallel ranks means all. Throws ConfigError if the ranks cannot be divided
// into such groups.
Mesh rank_mesh(const Experiment& experiment, int ranks, int ranks_per_node);

}  // namespace dltrain

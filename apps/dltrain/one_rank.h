// Measures a model on one rank; the search guesses the speed and memory of layouts from the result.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>

#include "run/session.h"

namespace dltrain {

struct OneRank {
  double replicated = 0, gradients = 0, moments = 0;  // bytes of state
  // Seconds of an update, of a micro-batch, and of each of its samples.
  double update = 0, micro_batch = 0, sample = 0;
  double copies = 0;       // bytes of the parameters as products read them
  double activations = 0;  // bytes of a sample
  double residual = 0;     // bytes between blocks, of a sample
  // Bytes of a sample in all layers: keys and values of attention, and rows that go to experts.
  double keys = 0, rows = 0;
  double of_experts = 0;  // their part of the parameters
  // Tokens that context ranks can share, and experts that can be divided; 0: none.
  int64_t tokens = 0, experts = 0;
  int64_t blocks = 0, layers = 0;  // without blocks every layer counts as one
  double outside = 0;  // seconds of layers outside of blocks, divided by those of one block

  // Returns by how much the slowest stage takes longer than all on average. Stages have whole
  // blocks; what is outside counts for the last stage, as the head.
  double slowest_stage(int64_t stages) const;
  // The part of the parameters that one of so many expert ranks has.
  double part(int64_t expert) const {
    return 1 - of_experts + of_experts / static_cast<double>(expert);
  }
};

// Returns the paths of the layers that belong to repeated blocks.
std::set<std::string_view> layers_of_blocks(const Graph& graph);

// Returns all but the seconds and `outside`. `session`: planned for a micro-batch of one sample.
OneRank measure_one_rank(const Session& session);

}  // namespace dltrain

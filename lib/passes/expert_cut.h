// Expert parallelism: the experts of a mixture (lib/ops/experts.cpp) are divided over the ranks
// along the mesh's axis `expert`, which have different samples (Lepikhin et al. 2020, "GShard";
// Rajbhandari et al. 2022, "DeepSpeed-MoE"). And the limit on the rows of an expert (capacity).
//
// expert_cut() runs before the reverse pass. Tensors of experts [experts, …] become shards, and the
// rows of each layer go to the ranks of their experts and come back: the tokens are dispatched to a
// buffer for each owner (place_rows), the numbers of rows of each expert are exchanged, then the
// rows (all_to_all); the owner sorts what it has received by expert (sort_received), so its
// products are those of one rank; results take the same way back. With context parallelism the
// capacity is that of all tokens of the micro-batch, whose routing every rank has for the losses
// (context_cut.h). All shapes are fixed. Where more rows go to an owner than its buffer holds, the
// outputs of their tokens are NaN, so that the step writes no state, and the sums of place_rows say
// so; check_buffers() then ends the run.
//
// The reverse pass derives the backward, whose exchanges are the same in the other direction;
// lower_placements() turns them into collectives.
#pragma once

#include <vector>

#include "comm/mesh.h"
#include "config/source_location.h"
#include "graph/graph.h"
#include "nn/routers.h"

namespace dltrain {

struct ExpertCutOptions {
  Mesh mesh = {};
  int rank = 0;                                // of all ranks
  SourceLocation key = {}, capacity_key = {};  // parallelism.expert and expert_capacity
  // Rows that a buffer has room for, as a multiple of the average (the rows of a rank divided by
  // the ranks); 0: any number.
  double buffer = 0;
  // Rows that an expert takes of a micro-batch, as a multiple of the average; 0: any number.
  double capacity = 0;
  DType compute = DType::f32;
  int ranks() const { return mesh.size(mesh_axes::kExpert); }
  bool changes() const { return ranks() > 1 || capacity > 0; }
};

// Rewrites the layers with experts of a forward. The sums of place_rows are added to those of the
// routers. Throws ConfigError at the key if there are no experts, or if they cannot be divided
// evenly.
void expert_cut(Graph& graph, const ExpertCutOptions& options, std::vector<EmittedRouter>& routers);

}  // namespace dltrain

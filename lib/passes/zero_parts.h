// Shared by the passes of data parallelism: the memory of ZeRO's units in one graph. Not for other
// folders.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "passes/zero.h"

namespace dltrain {

struct UnitParts {
  const ZeroUnit* unit = nullptr;
  std::vector<ValueId> parameters;  // of the members
  ValueId gradient = kNoValue;      // this rank's part, complete in the update
  // The tensors of one kind that the step reads in full, kNoValue for those that the graph lacks,
  // and this rank's part of their memory. The part is gathered after the update, or if the rank
  // stores no more than that, before they are read.
  struct Gathered {
    ValueId part = kNoValue;
    std::vector<ValueId> tensors;
  };
  std::vector<Gathered> gathered;
};

// Returns the group that places `values` like the unit's members.
FlatGroup unit_group(const Graph& graph, const ZeroUnit& unit, const std::vector<ValueId>& values);

// Returns a group in which `values` follow each other.
FlatGroup adjacent(const Graph& graph, const std::vector<ValueId>& values);

// Adds a value that is a range of the memory of a group.
ValueId add_window(Graph& graph, size_t group, std::string name, TensorSpec spec, size_t offset);

// Returns the optimizer's node for each parameter; none in evaluation.
std::map<ValueId, const Node*> find_updates(const Graph& graph);

// The reductions of data_parallel().
void reduce_sums(Graph& graph, std::vector<UnitParts>& parts, const DataParallelOptions& options);

// The passes that follow.
void shard_optimizer(Graph& graph, std::vector<UnitParts>& parts,
                     const DataParallelOptions& options);
void gather_parameters(Graph& graph, const std::vector<UnitParts>& parts,
                       const DataParallelOptions& options);

}  // namespace dltrain

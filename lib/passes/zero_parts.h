// What the passes of ZeRO share: the memory of each unit in one graph. Not for other folders.
#pragma once

#include <vector>

#include "graph/builder.h"
#include "passes/zero.h"

namespace dltrain {

struct UnitParts {
  const ZeroUnit* unit = nullptr;
  std::vector<ValueId> parameters, copies;  // of the members, as the graph knew them
  ValueId master = kNoValue;                // this rank's part of the parameters
  ValueId copy = kNoValue;                  // and of the copies
  ValueId gradient = kNoValue;              // its part of the gradient, complete in the update
};

// Begins the memory of all units: parts of masters and copies, windows where they stay whole.
std::vector<UnitParts> make_unit_parts(Graph& graph, const std::vector<ZeroUnit>& units,
                                       const ZeroOptions& options);

// State of this rank's part of a unit: "<prefix><unit>". What it holds of the tensors
// "<prefix><parameter>" is recorded.
ValueId add_part(Graph& graph, const ZeroUnit& unit, const std::string& prefix, DType dtype,
                 Role role, const ZeroOptions& options);

// `values` (or what is kNoValue not) lie in one piece of memory as the members of the unit.
FlatGroup unit_group(const Graph& graph, const ZeroUnit& unit, const std::vector<ValueId>& values,
                     DType dtype, const ZeroOptions& options);

// Attributes of a collective among the ranks that share the state.
Attributes shared_collective(int64_t slot, const ZeroOptions& options);

// A value that is no state any more.
void retire(Graph& graph, ValueId value);

// The optimizer's update: (state, parameters, gradients, moments …); nullptr in evaluation.
const Node* find_update(const Graph& graph);

// The passes, in this order.
void shard_gradients(Graph& graph, std::vector<UnitParts>& parts, const ZeroOptions& options);
void shard_optimizer(Graph& graph, std::vector<UnitParts>& parts, const ZeroOptions& options);
void gather_parameters(Graph& graph, const std::vector<UnitParts>& parts,
                       const ZeroOptions& options);

}  // namespace dltrain

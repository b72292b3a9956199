// Shared by the passes of ZeRO: the memory of each unit in one graph. Not for other folders.
#pragma once

#include <map>
#include <vector>

#include "graph/builder.h"
#include "passes/zero.h"

namespace dltrain {

struct UnitParts {
  const ZeroUnit* unit = nullptr;
  std::vector<ValueId> parameters, copies, averages;  // of the members, as in the input graph
  ValueId master = kNoValue;                          // this rank's part of the parameters
  ValueId copy = kNoValue;                            // and of the copies
  ValueId gradient = kNoValue;  // its part of the gradient, complete in the update
  ValueId average = kNoValue;   // its part of the averages that an evaluation reads
};

// Adds the memory of all units: parts of masters and copies, windows where tensors stay full.
std::vector<UnitParts> make_unit_parts(Graph& graph, const std::vector<ZeroUnit>& units,
                                       const ZeroOptions& options);

// The elements of a member that are in this rank's part: [begin, begin + count) of the tensor, at
// element `at` of the part.
struct MemberRange {
  int64_t begin = 0, count = 0, at = 0;
};
MemberRange range_in_part(const ZeroUnit& unit, const ZeroUnit::Member& member,
                          const ZeroOptions& options);

// Adds state "<kind> of <unit>" for this rank's part of a unit, and records the shards of the
// tensors "<kind> of <parameter>" in it. An empty kind: the parameters themselves.
ValueId add_part(Graph& graph, const ZeroUnit& unit, const std::string& kind, DType dtype,
                 Role role, const ZeroOptions& options);

// Records that a part, state of a unit, has the range of the tensor "<kind> of <parameter>" too.
void record_in_part(Graph& graph, const ZeroUnit& unit, const ZeroUnit::Member& member,
                    const std::string& kind, ValueId part, const ZeroOptions& options);

// Returns the group that places `values` (kNoValue entries are skipped) like the unit's members.
FlatGroup unit_group(const Graph& graph, const ZeroUnit& unit, const std::vector<ValueId>& values,
                     DType dtype, const ZeroOptions& options);

// Returns the layout of a rank's part of a unit.
Layout part_layout(const ZeroUnit& unit);

// Returns the attributes of a collective over the ranks that share the state.
Attributes shared_collective(int64_t slot, const ZeroOptions& options);

// Makes the value an activation instead of state.
void make_activation(Graph& graph, ValueId value);

// Returns the optimizer's node for each parameter; none in evaluation.
std::map<ValueId, const Node*> find_updates(const Graph& graph);

// The passes, in this order.
void shard_gradients(Graph& graph, std::vector<UnitParts>& parts, const ZeroOptions& options);
void shard_optimizer(Graph& graph, std::vector<UnitParts>& parts, const ZeroOptions& options);
void gather_parameters(Graph& graph, const std::vector<UnitParts>& parts,
                       const ZeroOptions& options);

}  // namespace dltrain

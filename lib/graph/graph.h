// The static graph of a whole training step: values (SSA) and nodes in execution order. Layers emit
// the forward, the reverse pass appends the backward, later passes rewrite it; each pass is a pure
// function from graph to graph. The order of `nodes` is the order of execution.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/placement.h"
#include "graph/role.h"
#include "ops/op.h"

namespace dltrain {

// The segment that a node belongs to. `weights` is the part of the backward that no stage of a
// pipeline waits for (passes/split_backward.h); usually it is empty.
enum class Phase : uint8_t { forward, backward, weights, update };
inline constexpr size_t kPhases = 4;
std::string_view phase_name(Phase phase);

// The name of state that belongs to other state: "momentum of layers.0.weight". Layers' names
// contain no blanks, so these names differ from those of all parameters. Nothing takes a name
// apart: GraphValue and StateTensor have the owner and the kind.
inline std::string state_name(std::string_view kind, std::string_view owner) {
  return std::string(kind).append(" of ").append(owner);
}

struct GraphValue {
  // Unique for persistent values: "layers.0.weight", "momentum of layers.0.weight".
  std::string name = {};
  TensorSpec spec;
  Role role = Role::activation;
  int producer = -1;              // index into nodes; −1 for inputs and state
  ValueId storage_of = kNoValue;  // the value whose memory it shares (in-place writers, reshape)
  // For a moment, low-precision copy, average or gradient: the parameter or buffer it belongs to,
  // and what it is of it ("momentum").
  ValueId of = kNoValue;
  std::string kind = {};
  // Over the ranks; passes/partition.h and passes/zero.h set these. `shard`: of state that this
  // rank does not store in full, whose `spec` is that of what it stores.
  Layout layout = {};
  std::optional<Shard> shard = {};
};

struct Node {
  const OpDef* op = nullptr;
  Attributes attributes;
  std::vector<ValueId> inputs;  // kNoValue where an optional input is absent
  std::vector<ValueId> outputs;
  std::string layer;  // path of the layer that emitted it: "layers.3"
  Phase phase = Phase::forward;
  int block = -1;  // the copy of a `repeat` that it belongs to, numbered over the model; −1: none
  bool once_per_step = false;  // runs in the last micro-step only (collectives over sums)
  int chunk = 0;  // of a rank with several stages of a pipeline: forwards and backwards of its own
};

// Values that are adjacent in memory so that one message transfers them, such as the tensors of a
// unit that is sharded over the ranks (passes/zero.h), and windows: values that are ranges of this
// memory.
struct FlatGroup {
  struct Member {
    ValueId value = kNoValue;
    size_t offset = 0;    // bytes
    bool window = false;  // overlaps other members: a range of them
  };
  std::vector<Member> members;  // except windows: in order of offset, the first at 0
  size_t bytes = 0;
};

struct Graph {
  // A deque: references to values stay valid when others are added.
  std::deque<GraphValue> values;
  std::vector<Node> nodes;
  ValueId step_state = kNoValue;
  std::vector<FlatGroup> groups;

  const GraphValue& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  GraphValue& value(ValueId id) { return values[static_cast<size_t>(id)]; }

  // Adds a value and returns its id.
  ValueId add(GraphValue value);
  // Returns the node that produces a value; nullptr for inputs, state and kNoValue.
  const Node* producer_of(ValueId id) const;
  // The value that owns the memory of `id`, following storage_of to its end.
  ValueId storage(ValueId id) const;
  // Returns true if the value continues a sum: it shares the memory of another value, which its
  // node does not read, and its node adds to that memory in every micro-step.
  bool continues_sum(ValueId id) const;
  // Returns for each value that begins a sum the last of those that continue it; for others the
  // value itself.
  std::vector<ValueId> whole_sums() const;
  // Returns the output of the last in-place writer of the memory of `root`, or `root` itself.
  ValueId newest(ValueId root) const;
  // Returns the value named `name`, or kNoValue.
  ValueId find(std::string_view name) const;
  std::vector<ValueId> with_role(Role role) const;
  // For each value: the group that it is a member of (−1: none) and its offset there.
  struct GroupOffset {
    int group = -1;
    size_t offset = 0;
    bool window = false;
  };
  std::vector<GroupOffset> group_offsets() const;
  // Returns a slot number that no collective uses yet.
  int64_t next_slot() const;

  // Specs of a node's inputs (absent_spec() for absent ones) and outputs.
  SpecList input_specs(const Node& node) const;
  SpecList output_specs(const Node& node) const;

  // Returns the cost of a call of a node.
  Cost cost(const Node& node) const;

  // Appends a node whose inputs have changed: its outputs get the specs and the memory that the
  // rules of its op give.
  void append(Node node);

  // Removes the nodes that are marked in `gone` (one mark per node); the others keep their order.
  void remove_nodes(const std::vector<bool>& gone);

  // Return, for each value, the number of nodes that read it, and their indices into nodes. A node
  // that reads a value twice counts twice.
  std::vector<int> count_uses() const;
  std::vector<std::vector<int>> readers() const;

  // Recomputes `producer` of every value after a pass has inserted, moved or removed nodes. Values
  // that no node produces any more stay in the list, so that ids stored elsewhere remain valid.
  void update_producers();
};

// Values, and those that are read in their place.
using Replacements = std::map<ValueId, ValueId>;
// Returns the value that is read in the place of `id`, which may be `id` itself.
ValueId replaced(const Replacements& by, ValueId id);
void replace_inputs(Node& node, const Replacements& by);

// One line per node: "%7 = matmul(%5, layers.0.weight) {transpose_b=true} : f32[32, 10] #
// layers.0". Deterministic: passes are tested by comparing it before and after.
std::string print_graph(const Graph& graph);

// Checks the invariants that every pass must keep; throws Error(internal) naming the node: inputs
// exist and are produced earlier; shapes agree with the shape rules; phases are in order; in-place
// writes come after every other read of the old content, also reads through views; an accumulating
// value is its node's only output and is read only in the update segment, or by nodes that run once
// a step or combine micro-steps, and not before the sum is complete; names of state are unique;
// asynchronous work obeys verify_slots() (graph/slots.h).
void verify_graph(const Graph& graph);

}  // namespace dltrain

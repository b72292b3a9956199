#include "passes/zero.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "graph/memory_planner.h"
#include "passes/verify_pass.h"
#include "passes/zero_parts.h"

namespace dltrain {
namespace {

// Members of bf16 begin at multiples of 64 bytes, those with moments in 8 bits at blocks of these.
int64_t aligned(int64_t elements, int64_t block) {
  const int64_t alignment = std::max<int64_t>(32, block);
  return (elements + alignment - 1) / alignment * alignment;
}

// Returns the elements of a member that one element of its state stands for.
int64_t elements_each(const ZeroUnit& unit, const GraphValue& state) {
  return state.role == Role::moment && is_floating(state.spec.dtype) ? unit.block : 1;
}

// Describes how the step reads a parameter.
struct ParameterUse {
  bool trainable = false, master = false;
  // Its gradient is made in the update: stages of a pipeline that share the parameter add theirs
  // there, and optim/galore.h projects whole gradients. Every rank updates it.
  bool whole = false;
  int chunk = 0;      // that reads it first
  int64_t block = 1;  // of moments in 8 bits
  std::optional<DType> copy;
};

std::map<ValueId, ParameterUse> find_uses(const Graph& graph, std::vector<ValueId>& order) {
  std::map<ValueId, ParameterUse> uses;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::update) break;
    for (ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      const ValueId root = graph.storage(id);
      const GraphValue& value = graph.value(root);
      const bool copy = value.role == Role::low_precision;
      if (!copy && value.role != Role::parameter) continue;
      const ValueId parameter = copy ? value.of : root;
      const auto [use, first] = uses.try_emplace(parameter);
      if (first) order.push_back(parameter);
      if (first) use->second.chunk = node.chunk;
      if (copy) use->second.copy = value.spec.dtype;
      if (!copy) use->second.master = true;
    }
  }
  for (const auto& [parameter, update] : find_updates(graph)) {
    if (graph.value(parameter).role != Role::parameter) continue;  // a projection (optim/galore.h)
    const auto found = uses.find(parameter);
    check_internal(found != uses.end(), "a parameter with a gradient that nothing reads");
    found->second.trainable = true;
    found->second.block = update->attributes.integer("block", 1);
    const Node* made = graph.producer_of(update->inputs[2]);
    found->second.whole = made != nullptr && made->phase == Phase::update;
  }
  return uses;
}

}  // namespace

std::vector<ZeroUnit> find_zero_units(const Graph& graph, const DataParallelOptions& options) {
  std::vector<ValueId> order;
  const std::map<ValueId, ParameterUse> uses = find_uses(graph, order);
  std::vector<ZeroUnit> units;
  using Key = std::tuple<int, bool, bool, int64_t, std::optional<DType>, DType, std::string>;
  struct UnitInProgress {
    size_t unit;
    int64_t filled;
  };
  std::map<Key, UnitInProgress> open;
  for (ValueId id : order) {
    const GraphValue& parameter = graph.value(id);
    const ParameterUse& use = uses.at(id);
    if (use.whole || (!use.trainable && options.zero_stage < 3)) continue;
    const std::string cut = parameter.layout.empty() ? "" : parameter.layout.front().axis;
    const char* axes = cut == mesh_axes::kExpert ? mesh_axes::kStateOfExpert : mesh_axes::kState;
    if (options.mesh.size(axes) == 1) continue;
    const Key key{use.chunk, use.trainable,        use.master, use.block,
                  use.copy,  parameter.spec.dtype, cut};
    const int64_t elements = parameter.spec.shape.elements();
    const int64_t most = static_cast<int64_t>(options.bucket_bytes / sizeof(float));
    auto at = open.find(key);
    if (at == open.end() || at->second.filled + elements > most) {
      units.push_back({.name = fmt::format("zero.{}", units.size()),
                       .axes = axes,
                       .ranks = options.mesh.size(axes),
                       .members = {},
                       .trainable = use.trainable,
                       .reads_master = use.master,
                       .block = use.block,
                       .copies = use.copy,
                       .layout = {{mesh_axes::kState, {Placement::sharded, 0, {}}}}});
      for (const AxisPlacement& other : parameter.layout) {
        units.back().layout.push_back({other.axis, {}});
      }
      if (options.mesh.size(mesh_axes::kExpert) > 1 && cut != mesh_axes::kExpert) {
        units.back().layout.push_back({mesh_axes::kExpert, {}});
      }
      at = open.insert_or_assign(key, UnitInProgress{units.size() - 1, 0}).first;
    }
    units[at->second.unit].members.push_back({parameter.name, parameter.spec, at->second.filled});
    at->second.filled = aligned(at->second.filled + elements, use.block);
  }
  for (ZeroUnit& unit : units) {
    const ZeroUnit::Member& last = unit.members.back();
    const int64_t filled = last.first + last.spec.shape.elements();
    unit.elements = aligned((filled + unit.ranks - 1) / unit.ranks, unit.block);
  }
  return units;
}

std::map<ValueId, const Node*> find_updates(const Graph& graph) {
  std::map<ValueId, const Node*> out;
  for (const Node& node : graph.nodes) {
    if (node.op->update == UpdateKind::sums || node.op->update == UpdateKind::optimizer) {
      out.try_emplace(graph.storage(node.inputs[1]), &node);
    }
  }
  return out;
}

FlatGroup unit_group(const Graph& graph, const ZeroUnit& unit, const std::vector<ValueId>& values) {
  FlatGroup group;
  const size_t element = dtype_size(graph.value(values.front()).spec.dtype);
  group.bytes = static_cast<size_t>(unit.elements * unit.ranks) * element;
  for (size_t i = 0; i < values.size(); ++i) {
    group.members.push_back({values[i], static_cast<size_t>(unit.members[i].first) * element});
  }
  return group;
}

FlatGroup adjacent(const Graph& graph, const std::vector<ValueId>& values) {
  FlatGroup group;
  for (ValueId id : values) {
    group.members.push_back({id, group.bytes});
    group.bytes += align_up(graph.value(id).spec.bytes());
  }
  return group;
}

ValueId add_window(Graph& graph, size_t group, std::string name, TensorSpec spec, size_t offset) {
  const ValueId out = GraphBuilder(graph).add_value(std::move(name), spec, Role::partial);
  graph.groups[group].members.push_back({out, offset, true});
  return out;
}

namespace {

// Places the state of the members of units.
class UnitPlacement {
 public:
  UnitPlacement(Graph& graph, const std::vector<ZeroUnit>& units,
                const DataParallelOptions& options)
      : graph_(graph), options_(options), trains_(!find_updates(graph).empty()) {
    for (const ZeroUnit& unit : units)
      parts_.push_back({.unit = &unit, .parameters = {}, .gathered = {}});
  }

  std::vector<UnitParts> run() {
    std::map<ValueId, std::pair<size_t, size_t>> members;  // by parameter: unit, and place in it
    for (size_t u = 0; u < parts_.size(); ++u) {
      for (const ZeroUnit::Member& member : parts_[u].unit->members) {
        const ValueId id = graph_.find(member.parameter);
        if (id != kNoValue) members[id] = {u, parts_[u].parameters.size()};
        parts_[u].parameters.push_back(id);
      }
    }
    // The state of each unit by role and kind.
    using Kind = std::tuple<size_t, Role, std::string>;
    std::map<Kind, std::vector<ValueId>> state;
    for (const Role role : {Role::parameter, Role::low_precision, Role::moment, Role::ema}) {
      for (ValueId id : graph_.with_role(role)) {
        const GraphValue& value = graph_.value(id);
        const auto found = members.find(role == Role::parameter ? id : value.of);
        if (found == members.end()) continue;
        const auto [u, at] = found->second;
        const ZeroUnit& unit = *parts_[u].unit;
        // Some optimizers have moments of another shape.
        if (elements_each(unit, value) == 1 && !(value.spec.shape == unit.members[at].spec.shape)) {
          continue;
        }
        auto& values = state[{u, role, value.kind}];
        values.resize(unit.members.size(), kNoValue);
        values[at] = id;
      }
    }
    for (const auto& [kind, values] : state) {
      place(parts_[std::get<size_t>(kind)], std::get<Role>(kind), values);
    }
    return std::move(parts_);
  }

 private:
  void place(UnitParts& parts, Role role, const std::vector<ValueId>& values) {
    const ZeroUnit& unit = *parts.unit;
    const bool read = (role == Role::parameter && unit.reads_master) ||
                      role == Role::low_precision || (role == Role::ema && !trains_);
    const bool whole = options_.zero_stage < 3 && read && role != Role::ema;
    if (whole && !trains_) return;
    const GraphValue first =
        graph_.value(*std::ranges::find_if(values, [](ValueId id) { return id != kNoValue; }));
    const TensorSpec part{Shape{unit.elements / elements_each(unit, first)}, first.spec.dtype};
    const size_t own = whole ? static_cast<size_t>(options_.part(unit.axes)) * part.bytes() : 0;
    const size_t group = graph_.groups.size();
    graph_.groups.push_back(whole ? unit_group(graph_, unit, values) : shard(unit, values, part));
    if (!read) return;
    const std::string name = first.kind.empty() ? unit.name : state_name(first.kind, unit.name);
    parts.gathered.push_back({add_window(graph_, group, name, part, own), values});
  }

  // Makes each value this rank's range of it, in the memory of the rank's part of the unit.
  FlatGroup shard(const ZeroUnit& unit, const std::vector<ValueId>& values, TensorSpec part) {
    FlatGroup group{.members = {}, .bytes = part.bytes()};
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == kNoValue) continue;
      GraphValue& value = graph_.value(values[i]);
      if (!value.shard) value.shard = Shard{.whole = value.spec};
      const int64_t each = elements_each(unit, value);
      value.shard->flat = {unit.members[i].first / each, unit.elements / each,
                           options_.part(unit.axes)};
      value.spec = value.shard->stored();
      value.layout = unit.layout;
      group.members.push_back(
          {values[i], static_cast<size_t>(value.shard->range().at) * dtype_size(part.dtype)});
    }
    return group;
  }

  Graph& graph_;
  const DataParallelOptions& options_;
  bool trains_;
  std::vector<UnitParts> parts_;
};

}  // namespace

Graph zero(Graph graph, const std::vector<ZeroUnit>& units, const DataParallelOptions& options) {
  if (!options.shards_state()) return graph;
  const bool trains = !find_updates(graph).empty();
  std::vector<UnitParts> parts = UnitPlacement(graph, units, options).run();
  if (trains) {
    reduce_sums(graph, parts, options);
    shard_optimizer(graph, parts, options);
  }
  if (!trains || options.zero_stage == 3) gather_parameters(graph, parts, options);
  verify_pass(graph);
  return graph;
}

}  // namespace dltrain

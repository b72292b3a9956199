#include "passes/zero.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "comm/mesh.h"
#include "graph/state_name.h"
#include "passes/zero_parts.h"

namespace dltrain {
namespace {

constexpr int64_t kAlignment = 32;  // elements: members of bf16 begin at multiples of 64 bytes

int64_t aligned(int64_t elements) {
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

// The optimizer's settings of a parameter, and how the step reads it.
struct ParameterUse {
  double lr_scale = 1, weight_decay = 0;
  bool trainable = false, master = false;
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
      if (copy) use->second.copy = value.spec.dtype;
      if (!copy) use->second.master = true;
    }
  }
  for (const auto& [parameter, update] : find_updates(graph)) {
    const auto found = uses.find(parameter);
    check_internal(found != uses.end(), "a parameter with a gradient that nothing reads");
    found->second.trainable = true;
    found->second.lr_scale = update->attributes.numbers("lr_scale", {1})[0];
    found->second.weight_decay = update->attributes.numbers("weight_decay", {0})[0];
  }
  return uses;
}

}  // namespace

std::vector<ZeroUnit> find_zero_units(const Graph& graph, const ZeroOptions& options) {
  std::vector<ValueId> order;
  const std::map<ValueId, ParameterUse> uses = find_uses(graph, order);
  std::vector<ZeroUnit> units;
  using Key = std::tuple<double, double, bool, bool, std::optional<DType>, DType, bool>;
  struct UnitInProgress {
    size_t unit;
    int64_t filled;
  };
  std::map<Key, UnitInProgress> open;
  for (ValueId id : order) {
    const GraphValue& parameter = graph.value(id);
    const ParameterUse& use = uses.at(id);
    if (!use.trainable && options.stage < 3) continue;
    const Key key{use.lr_scale, use.weight_decay,     use.trainable,           use.master,
                  use.copy,     parameter.spec.dtype, parameter.layout.empty()};
    const int64_t elements = parameter.spec.shape.elements();
    const int64_t most = static_cast<int64_t>(options.bucket_bytes / sizeof(float));
    auto at = open.find(key);
    if (at == open.end() || at->second.filled + elements > most) {
      units.push_back({.name = fmt::format("zero.{}", units.size()),
                       .members = {},
                       .lr_scale = use.lr_scale,
                       .weight_decay = use.weight_decay,
                       .trainable = use.trainable,
                       .reads_master = use.master,
                       .copies = use.copy,
                       .layout = parameter.layout.empty()
                                     ? Layout()
                                     : Layout{{parameter.layout.front().axis, {}}}});
      at = open.insert_or_assign(key, UnitInProgress{units.size() - 1, 0}).first;
    }
    units[at->second.unit].members.push_back({parameter.name, parameter.spec, at->second.filled});
    at->second.filled = aligned(at->second.filled + elements);
  }
  for (ZeroUnit& unit : units) {
    const ZeroUnit::Member& last = unit.members.back();
    const int64_t filled = last.first + last.spec.shape.elements();
    unit.elements = aligned((filled + options.ranks() - 1) / options.ranks());
  }
  return units;
}

std::map<ValueId, const Node*> find_updates(const Graph& graph) {
  std::map<ValueId, const Node*> out;
  for (const Node& node : graph.nodes) {
    if (node.op->update == UpdateKind::optimizer) out[graph.storage(node.inputs[1])] = &node;
  }
  return out;
}

namespace {

std::string kind_of(const std::string& kind, const std::string& owner) {
  return kind.empty() ? owner : state_name(kind, owner);
}

}  // namespace

ValueId add_part(Graph& graph, const ZeroUnit& unit, const std::string& kind, DType dtype,
                 Role role, const ZeroOptions& options) {
  GraphBuilder builder(graph);
  const ValueId part =
      builder.add_value(kind_of(kind, unit.name), {Shape{unit.elements}, dtype}, role);
  graph.value(part).layout = part_layout(unit);
  const int64_t from = options.part() * unit.elements, to = from + unit.elements;
  for (const ZeroUnit::Member& member : unit.members) {
    const int64_t elements = member.spec.shape.elements();
    const int64_t begin = std::clamp<int64_t>(from - member.first, 0, elements);
    const int64_t end = std::clamp<int64_t>(to - member.first, 0, elements);
    Shard shard{.name = kind_of(kind, member.parameter),
                .owner = member.parameter,
                .kind = kind,
                .whole = {member.spec.shape, dtype},
                .role = role,
                .value = part,
                .begin = begin,
                .count = end - begin,
                .at = end > begin ? member.first + begin - from : 0,
                .first = member.first};
    if (const Shard* local = graph.find_shard(member.parameter)) {
      shard.whole.shape = local->whole.shape;
      shard.cut = local->cut;
    }
    std::erase_if(graph.shards, [&](const Shard& old) { return old.name == shard.name; });
    graph.shards.push_back(std::move(shard));
  }
  return part;
}

FlatGroup unit_group(const Graph& graph, const ZeroUnit& unit, const std::vector<ValueId>& values,
                     DType dtype, const ZeroOptions& options) {
  FlatGroup group;
  group.bytes = static_cast<size_t>(unit.elements * options.ranks()) * dtype_size(dtype);
  for (size_t i = 0; i < values.size(); ++i) {
    check_internal(values[i] != kNoValue && graph.value(values[i]).spec.dtype == dtype,
                   "{} has no {}", unit.name, unit.members[i].parameter);
    group.members.push_back(
        {values[i], static_cast<size_t>(unit.members[i].first) * dtype_size(dtype)});
  }
  return group;
}

Layout part_layout(const ZeroUnit& unit) {
  Layout out{{mesh_axes::kShard, {Placement::sharded, 0}}};
  out.insert(out.end(), unit.layout.begin(), unit.layout.end());
  return out;
}

Attributes shared_collective(int64_t slot, const ZeroOptions& options) {
  Attributes out{{"slot", slot}};
  if (const std::string over = options.mesh.over(mesh_axes::kShard); !over.empty()) {
    out.set(kOver, over);
  }
  return out;
}

void make_activation(Graph& graph, ValueId value) {
  graph.value(value).role = Role::activation;
}

namespace {

// Adds this rank's part as a window into the full tensors.
ValueId add_window(Graph& graph, const ZeroUnit& unit, const std::vector<ValueId>& values,
                   const std::string& kind, DType dtype, Role role, const ZeroOptions& options) {
  GraphBuilder builder(graph);
  const ValueId part =
      builder.add_value(kind_of(kind, unit.name), {Shape{unit.elements}, dtype}, role);
  FlatGroup group = unit_group(graph, unit, values, dtype, options);
  group.members.push_back(
      {part, static_cast<size_t>(options.part() * unit.elements) * dtype_size(dtype), true});
  graph.groups.push_back(std::move(group));
  return part;
}

}  // namespace

namespace {

// For an evaluation that reads copies: removes the masters, which no rank stores in full.
void retire_masters(Graph& graph, const std::vector<ZeroUnit>& units) {
  for (const ZeroUnit& unit : units) {
    for (const ZeroUnit::Member& member : unit.members) {
      const ValueId id = graph.find(member.parameter);
      if (!unit.reads_master && id != kNoValue) make_activation(graph, id);
    }
  }
  verify_graph(graph);
}

}  // namespace

std::vector<UnitParts> make_unit_parts(Graph& graph, const std::vector<ZeroUnit>& units,
                                       const ZeroOptions& options) {
  const std::string low = "low_precision";
  std::map<ValueId, ValueId> copies;  // by parameter
  for (ValueId id : graph.with_role(Role::low_precision)) copies[graph.value(id).of] = id;
  std::vector<UnitParts> out;
  for (const ZeroUnit& unit : units) {
    UnitParts parts{.unit = &unit, .parameters = {}, .copies = {}};
    for (const ZeroUnit::Member& member : unit.members) {
      parts.parameters.push_back(graph.find(member.parameter));
      const auto copy = copies.find(parts.parameters.back());
      parts.copies.push_back(copy == copies.end() ? kNoValue : copy->second);
    }
    const DType dtype = unit.members.front().spec.dtype;
    if (unit.reads_master && options.stage < 3) {
      parts.master = add_window(graph, unit, parts.parameters, "", dtype, Role::parameter, options);
    } else {
      parts.master = add_part(graph, unit, "", dtype, Role::parameter, options);
      for (ValueId id : parts.parameters) {
        if (id != kNoValue) make_activation(graph, id);
      }
    }
    if (unit.copies && options.stage < 3) {
      parts.copy =
          add_window(graph, unit, parts.copies, low, *unit.copies, Role::low_precision, options);
    } else if (unit.copies) {
      parts.copy = add_part(graph, unit, low, *unit.copies, Role::low_precision, options);
      for (ValueId id : parts.copies) {
        if (id != kNoValue) make_activation(graph, id);
      }
    }
    out.push_back(std::move(parts));
  }
  return out;
}

Graph zero(Graph graph, const std::vector<ZeroUnit>& units, const ZeroOptions& options) {
  const bool trains = !find_updates(graph).empty();
  if (!options.active()) return graph;
  if (!trains && options.stage < 3) {
    retire_masters(graph, units);
    return graph;
  }
  std::vector<UnitParts> parts = make_unit_parts(graph, units, options);
  if (trains) {
    shard_gradients(graph, parts, options);
    shard_optimizer(graph, parts, options);
  }
  if (options.stage == 3) gather_parameters(graph, parts, options);
  verify_graph(graph);
  return graph;
}

}  // namespace dltrain

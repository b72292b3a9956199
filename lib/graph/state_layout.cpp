#include "graph/state_layout.h"

#include <algorithm>

#include "base/error.h"
#include "graph/memory_planner.h"

namespace dltrain {

void StateLayout::add(const Graph& graph, bool gradients) {
  const std::vector<Graph::GroupOffset> value_offsets = graph.group_offsets();
  std::vector<const Shard*> shard_in(graph.values.size(), nullptr);
  for (const Shard& shard : graph.shards) shard_in[static_cast<size_t>(shard.value)] = &shard;
  constexpr size_t kUnplaced = SIZE_MAX;
  std::vector<size_t> group_offsets(graph.groups.size(), kUnplaced);
  for (const RoleRules& rules : role_table()) {
    if (!rules.persistent || (rules.role == Role::gradient && !gradients)) continue;
    for (ValueId id : graph.with_role(rules.role)) {
      const GraphValue& value = graph.value(id);
      const Graph::GroupOffset& at = value_offsets[static_cast<size_t>(id)];
      const StateTensor* known = find(value.name);
      const StateUnit* known_unit = find_unit(value.name);
      if (known != nullptr || known_unit != nullptr) {
        const TensorSpec spec = known_unit != nullptr ? known_unit->spec
                                : known->shard        ? known->shard->local()
                                                      : known->spec;
        check_internal(spec == value.spec, "{} is {} in one graph and {} in another", value.name,
                       to_string(spec), to_string(value.spec));
        continue;
      }
      check_internal(!value.name.empty(), "state without a name");
      size_t* begin = at.group < 0 ? nullptr : &group_offsets[static_cast<size_t>(at.group)];
      size_t offset = bytes_;
      if (begin == nullptr || *begin == kUnplaced) {
        if (begin != nullptr) *begin = bytes_;
        offset += at.offset;
        bytes_ += align_up(begin == nullptr ? value.spec.bytes()
                                            : graph.groups[static_cast<size_t>(at.group)].bytes);
      } else {
        offset = *begin + at.offset;
      }
      const Shard* shard = shard_in[static_cast<size_t>(id)];
      if (at.window || (shard != nullptr && shard->name != value.name)) {
        units_.push_back({value.name, value.spec, value.role, offset, at.window});
        continue;
      }
      const std::string& owner = value.of == kNoValue ? value.name : graph.value(value.of).name;
      tensors_.push_back({value.name, owner, value.kind, value.spec, value.role, offset});
      if (shard == nullptr) continue;
      tensors_.back().spec = shard->whole;
      tensors_.back().shard = *shard;
    }
  }
  for (const Shard& shard : graph.shards) {
    const GraphValue& value = graph.value(shard.value);
    if (value.name == shard.name || find(shard.name) != nullptr) continue;
    const auto unit = static_cast<size_t>(find_unit(value.name) - units_.data());
    const size_t offset =
        units_[unit].offset + static_cast<size_t>(shard.at) * dtype_size(value.spec.dtype);
    tensors_.push_back(
        {shard.name, shard.owner, shard.kind, shard.whole, shard.role, offset, shard, unit});
  }
}

const StateTensor* StateLayout::find(std::string_view name) const {
  for (const StateTensor& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

const StateTensor* StateLayout::find(std::string_view owner, Role role) const {
  for (const StateTensor& tensor : tensors_) {
    if (tensor.owner == owner && tensor.role == role) return &tensor;
  }
  return nullptr;
}

const StateUnit* StateLayout::find_unit(std::string_view name) const {
  for (const StateUnit& unit : units_) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

size_t StateLayout::offset_of(const GraphValue& value) const {
  if (const StateUnit* unit = find_unit(value.name)) return unit->offset;
  const StateTensor* tensor = find(value.name);
  check_internal(tensor != nullptr && !tensor->unit, "the state layout has only a part of {}",
                 value.name);
  return tensor->offset;
}

bool StateLayout::has_shards() const {
  return std::ranges::any_of(tensors_, [](const StateTensor& t) { return t.shard.has_value(); });
}

size_t StateLayout::bytes(Role role) const {
  size_t sum = 0;
  for (const StateTensor& tensor : tensors_) {
    if (tensor.role == role) sum += tensor.own_bytes();
  }
  for (const StateUnit& unit : units_) {
    if (unit.role == role && !unit.window) sum += unit.spec.bytes();
  }
  return sum;
}

}  // namespace dltrain

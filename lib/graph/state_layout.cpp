#include "graph/state_layout.h"

#include <algorithm>

#include "base/error.h"
#include "graph/memory_planner.h"

namespace dltrain {

void StateLayout::add(const Graph& graph, bool gradients,
                      const std::function<bool(const GraphValue&)>& wanted) {
  const std::vector<Graph::GroupOffset> value_offsets = graph.group_offsets();
  std::vector<bool> is_unit(graph.values.size(), false);
  for (const ShardedTensor& tensor : graph.sharded) {
    is_unit[static_cast<size_t>(tensor.part)] = true;
  }
  constexpr size_t kUnplaced = SIZE_MAX;
  std::vector<size_t> group_offsets(graph.groups.size(), kUnplaced);
  for (const RoleRules& rules : role_table()) {
    if (!rules.persistent || (rules.role == Role::gradient && !gradients)) continue;
    for (ValueId id : graph.with_role(rules.role)) {
      const GraphValue& value = graph.value(id);
      if (wanted && !wanted(value)) continue;
      const Graph::GroupOffset& at = value_offsets[static_cast<size_t>(id)];
      const StateTensor* known = find(value.name);
      const StateUnit* known_unit = find_unit(value.name);
      if (known != nullptr || known_unit != nullptr) {
        const TensorSpec& spec = known != nullptr ? known->spec : known_unit->spec;
        check_internal(spec == value.spec, "{} is {} in one graph and {} in another", value.name,
                       to_string(spec), to_string(value.spec));
        continue;
      }
      check_internal(!value.name.empty(), "state without a name");
      size_t* begin = at.group < 0 ? nullptr : &group_offsets[static_cast<size_t>(at.group)];
      if (begin == nullptr || *begin == kUnplaced) {
        if (begin != nullptr) *begin = bytes_;
        place(graph, value, is_unit[static_cast<size_t>(id)], at.window, bytes_ + at.offset);
        bytes_ += align_up(begin == nullptr ? value.spec.bytes()
                                            : graph.groups[static_cast<size_t>(at.group)].bytes);
      } else {
        place(graph, value, is_unit[static_cast<size_t>(id)], at.window, *begin + at.offset);
      }
    }
  }
  for (const ShardedTensor& tensor : graph.sharded) {
    if (find(tensor.name) != nullptr) continue;
    const GraphValue& part = graph.value(tensor.part);
    const auto unit = static_cast<size_t>(find_unit(part.name) - units_.data());
    const size_t element = dtype_size(part.spec.dtype);
    tensors_.push_back({tensor.name,
                        tensor.owner,
                        tensor.kind,
                        tensor.spec,
                        tensor.role,
                        units_[unit].offset + static_cast<size_t>(tensor.at) * element,
                        {{tensor.begin, tensor.count, tensor.first, unit}}});
  }
}

void StateLayout::place(const Graph& graph, const GraphValue& value, bool is_unit, bool window,
                        size_t offset) {
  if (is_unit || window) {
    units_.push_back({value.name, value.spec, value.role, offset, window});
  } else {
    const std::string& owner = value.of == kNoValue ? value.name : graph.value(value.of).name;
    tensors_.push_back({value.name, owner, value.kind, value.spec, value.role, offset});
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
  check_internal(tensor != nullptr && !tensor->part, "the state layout has only a part of {}",
                 value.name);
  return tensor->offset;
}

bool StateLayout::has_parts() const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [](const StateTensor& tensor) { return tensor.part.has_value(); });
}

size_t StateLayout::bytes(Role role) const {
  size_t sum = 0;
  for (const StateTensor& tensor : tensors_) {
    if (tensor.role == role && !tensor.part) sum += tensor.spec.bytes();
  }
  for (const StateUnit& unit : units_) {
    if (unit.role == role && !unit.window) sum += unit.spec.bytes();
  }
  return sum;
}

}  // namespace dltrain

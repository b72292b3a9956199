#include "graph/state_layout.h"

#include <algorithm>

#include "base/error.h"
#include "graph/memory_planner.h"

namespace dltrain {

void StateLayout::add(const Graph& graph, bool gradients,
                      const std::function<bool(const GraphValue&)>& wanted) {
  const std::vector<Graph::GroupOffset> group_offsets = graph.group_offsets();
  std::vector<std::optional<size_t>> group_begins(graph.groups.size());
  for (const RoleRules& rules : role_table()) {
    if (!rules.persistent || (rules.role == Role::gradient && !gradients)) continue;
    for (ValueId id : graph.with_role(rules.role)) {
      const GraphValue& value = graph.value(id);
      if ((wanted && !wanted(value)) || windows_.contains(value.name)) continue;
      check_internal(!value.name.empty(), "state without a name");
      const Graph::GroupOffset& at = group_offsets[static_cast<size_t>(id)];
      std::optional<size_t> none;
      std::optional<size_t>& begin =
          at.group < 0 ? none : group_begins[static_cast<size_t>(at.group)];
      if (const StateTensor* known = find(value.name)) {
        check_internal(known->stored() == value.spec, "{} is {} in one graph and {} in another",
                       value.name, to_string(known->stored()), to_string(value.spec));
        begin = known->offset - at.offset;
        continue;
      }
      if (!begin) {
        begin = bytes_;
        bytes_ += align_up(at.group < 0 ? value.spec.bytes()
                                        : graph.groups[static_cast<size_t>(at.group)].bytes);
      }
      if (at.window) {
        windows_.emplace(value.name, *begin + at.offset);
        continue;
      }
      tensors_.push_back({.name = value.name,
                          .owner = value.of == kNoValue ? value.name : graph.value(value.of).name,
                          .kind = value.kind,
                          .spec = value.shard ? value.shard->whole : value.spec,
                          .role = value.role,
                          .offset = *begin + at.offset,
                          .shard = value.shard});
    }
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

size_t StateLayout::offset_of(const GraphValue& value) const {
  if (const auto window = windows_.find(value.name); window != windows_.end()) {
    return window->second;
  }
  const StateTensor* tensor = find(value.name);
  check_internal(tensor != nullptr, "the state layout does not contain {}", value.name);
  return tensor->offset;
}

bool StateLayout::has_shards() const {
  return std::ranges::any_of(tensors_, [](const StateTensor& t) { return t.shard.has_value(); });
}

size_t StateLayout::bytes(Role role) const {
  size_t sum = 0;
  for (const StateTensor& tensor : tensors_) {
    if (tensor.role == role) sum += tensor.stored().bytes();
  }
  return sum;
}

}  // namespace dltrain

#include "graph/state_layout.h"

#include "base/error.h"
#include "graph/memory_planner.h"

namespace dltrain {

void StateLayout::add(const Graph& graph, bool gradients) {
  for (const RoleRules& rules : role_table()) {
    if (!rules.persistent || (rules.role == Role::gradient && !gradients)) continue;
    for (ValueId id : graph.with_role(rules.role)) {
      const GraphValue& value = graph.value(id);
      if (const StateTensor* known = find(value.name)) {
        check_internal(known->spec == value.spec, "{} is {} in one graph and {} in another",
                       value.name, to_string(known->spec), to_string(value.spec));
        continue;
      }
      check_internal(!value.name.empty(), "state without a name");
      tensors_.push_back({value.name, value.spec, rules.role, bytes_});
      bytes_ += align_up(value.spec.bytes());
    }
  }
}

const StateTensor* StateLayout::find(std::string_view name) const {
  for (const StateTensor& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

size_t StateLayout::bytes(Role role) const {
  size_t sum = 0;
  for (const StateTensor& tensor : tensors_) {
    if (tensor.role == role) sum += tensor.spec.bytes();
  }
  return sum;
}

}  // namespace dltrain

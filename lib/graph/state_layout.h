// Where everything that outlives a micro-step lies: parameters, moments, buffers, gradients, sums
// and the StepState, side by side in one region, in an order that keeps the tensors of a reduction
// bucket (or of a fused update) adjacent. Several plans (training, evaluation) share one layout by
// name.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

struct StateTensor {
  std::string name;
  TensorSpec spec;
  Role role = Role::parameter;
  size_t offset = 0;  // from the start of the region, a multiple of kMemoryAlignment outside groups
  // Of a tensor of which this rank holds a part only (graph.h: ShardedTensor): the elements
  // [begin, begin + count) lie at `offset`.
  struct Part {
    int64_t begin = 0, count = 0;
    int64_t first = 0;  // element of its unit at which the tensor begins
    size_t unit = 0;    // index into StateLayout::units()
  };
  std::optional<Part> part = {};
};

// Memory that is no tensor of the model: this rank's part of a unit.
struct StateUnit {
  std::string name;
  TensorSpec spec;
  Role role = Role::parameter;
  size_t offset = 0;
  bool window = false;  // lies among the tensors of the unit, which are whole here
};

class StateLayout {
 public:
  // Adds the persistent values of `graph` that are not there yet, role by role in the order of
  // their ids. A value that is there under the same name must have the same spec. Without
  // `gradients` these are left out (PlanOptions::keep_gradients).
  void add(const Graph& graph, bool gradients = true);

  std::span<const StateTensor> tensors() const { return tensors_; }
  std::span<const StateUnit> units() const { return units_; }
  // nullptr when there is none of that name.
  const StateTensor* find(std::string_view name) const;
  // Where the value of a graph lies: a whole tensor, or a part of a unit. Error(internal) when
  // there is no such memory.
  size_t offset_of(const GraphValue& value) const;
  // Some tensors are here in part only.
  bool has_parts() const;
  size_t bytes() const { return bytes_; }
  // Bytes of the tensors of one role, without alignment gaps.
  size_t bytes(Role role) const;

 private:
  const StateUnit* find_unit(std::string_view name) const;
  void place(const GraphValue& value, bool is_unit, bool window, size_t offset);

  std::vector<StateTensor> tensors_;
  std::vector<StateUnit> units_;
  size_t bytes_ = 0;
};

}  // namespace dltrain

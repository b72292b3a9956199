// Memory layout of everything that outlives a micro-step: parameters, moments, buffers, gradients,
// sums and the StepState, in one region. The tensors of a reduction bucket (or of a fused update)
// are adjacent. Several programs (training, evaluation) share one layout; tensors are identified by
// name.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

struct StateTensor {
  std::string name;
  // The parameter or buffer that it belongs to, which may be itself, and what it is of another one:
  // "momentum" (GraphValue::of and kind).
  std::string owner, kind;
  TensorSpec spec;  // of the whole tensor
  Role role = Role::parameter;
  size_t offset = 0;  // from the start of the region, a multiple of kMemoryAlignment outside groups
  // Set for a tensor of which this rank stores only a shard, which is at `offset`.
  std::optional<Shard> shard = {};
  std::optional<size_t> unit = {};  // index into StateLayout::units(); none: it is no part of one

  // The size of what the rank stores outside of units.
  size_t own_bytes() const { return unit ? 0 : shard ? shard->local().bytes() : spec.bytes(); }
};

// Memory that is not a tensor of the model: this rank's part of a unit.
struct StateUnit {
  std::string name;
  TensorSpec spec;
  Role role = Role::parameter;
  size_t offset = 0;
  bool window = false;  // overlaps the unit's tensors, which this rank stores in full
};

class StateLayout {
 public:
  // Adds the persistent values of `graph` that are missing, role by role in the order of their ids.
  // A value whose name is known must have the same spec. `gradients` false: leaves gradients out
  // (ProgramOptions::keep_gradients). `wanted`: whether the region contains a value; absent: all.
  void add(const Graph& graph, bool gradients = true,
           const std::function<bool(const GraphValue&)>& wanted = {});

  std::span<const StateTensor> tensors() const { return tensors_; }
  std::span<const StateUnit> units() const { return units_; }
  // Returns nullptr when there is no tensor of that name.
  const StateTensor* find(std::string_view name) const;
  // Returns the gradient, low-precision copy or average of a parameter or buffer, or nullptr.
  const StateTensor* find(std::string_view owner, Role role) const;
  // Returns the offset of a graph's value: a full tensor, or a part of a unit. Throws
  // Error(internal) when the layout does not contain it.
  size_t offset_of(const GraphValue& value) const;
  // True if this rank stores only a shard of some tensors.
  bool has_shards() const;
  size_t bytes() const { return bytes_; }
  // Bytes of the tensors of one role, without alignment gaps.
  size_t bytes(Role role) const;

 private:
  const StateUnit* find_unit(std::string_view name) const;

  std::vector<StateTensor> tensors_;
  std::vector<StateUnit> units_;
  size_t bytes_ = 0;
};

}  // namespace dltrain

// Memory layout of everything that outlives a micro-step: parameters, moments, buffers, gradients,
// sums and the StepState, in one region. The tensors of a reduction bucket (or of a fused update)
// are adjacent. Several programs (training, evaluation) share one layout; tensors are identified by
// name.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
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
  std::optional<Shard> shard = {};  // of a tensor that this rank does not store in full

  // Returns the spec of the part that this rank stores.
  TensorSpec stored() const { return shard ? shard->stored() : spec; }
};

class StateLayout {
 public:
  // Adds the persistent values of `graph` that are missing, role by role in the order of their ids.
  // A value whose name is known must have the same spec. `gradients` false: leaves gradients out
  // (ProgramOptions::keep_gradients). `wanted` selects the values of the region; absent: all.
  void add(const Graph& graph, bool gradients = true,
           const std::function<bool(const GraphValue&)>& wanted = {});

  std::span<const StateTensor> tensors() const { return tensors_; }
  // Returns nullptr when there is no tensor of that name.
  const StateTensor* find(std::string_view name) const;
  // Returns the gradient, low-precision copy or average of a parameter or buffer, or nullptr.
  const StateTensor* find(std::string_view owner, Role role) const;
  // Returns the offset of a graph's value: a tensor, or a window into the memory of others
  // (FlatGroup). Throws Error(internal) when the layout does not contain it.
  size_t offset_of(const GraphValue& value) const;
  // Returns whether this rank stores only a shard of some tensors.
  bool has_shards() const;
  size_t bytes() const { return bytes_; }
  // Bytes of the tensors of one role, without alignment gaps.
  size_t bytes(Role role) const;

 private:
  std::vector<StateTensor> tensors_;
  std::map<std::string, size_t, std::less<>> windows_;  // their offsets
  size_t bytes_ = 0;
};

}  // namespace dltrain

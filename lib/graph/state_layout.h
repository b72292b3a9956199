// Where everything that outlives a micro-step lies: parameters, moments, buffers, gradients, sums
// and the StepState, side by side in one region, in an order that keeps the tensors of a reduction
// bucket (or of a fused update) adjacent. Several plans (training, evaluation) share one layout by
// name.
#pragma once

#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

struct StateTensor {
  std::string name;
  TensorSpec spec;
  Role role = Role::parameter;
  size_t offset = 0;  // from the start of the region, a multiple of kMemoryAlignment
};

class StateLayout {
 public:
  // Adds the persistent values of `graph` that are not there yet, role by role in the order of
  // their ids. A value that is there under the same name must have the same spec. Without
  // `gradients` these are left out (PlanOptions::keep_gradients).
  void add(const Graph& graph, bool gradients = true);

  std::span<const StateTensor> tensors() const { return tensors_; }
  // nullptr when there is none of that name.
  const StateTensor* find(std::string_view name) const;
  size_t bytes() const { return bytes_; }
  // Bytes of the tensors of one role, without alignment gaps.
  size_t bytes(Role role) const;

 private:
  std::vector<StateTensor> tensors_;
  size_t bytes_ = 0;
};

}  // namespace dltrain

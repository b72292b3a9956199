// Queues the optimizers that scale the step of a whole tensor by norms (LARS, LAMB;
// lib/ops/update_adaptive.cpp): a pass over all chunks leaves sums of squares, a block a tensor
// adds them in order, and a second pass updates. Roles of the table: parameter, gradient, moments.
#pragma once

#include "cuda/update.h"
#include "shared/trust_rules.h"

namespace dltrain {

// Where a tensor's chunks lie in the table.
struct TensorChunks {
  int64_t first, count;
};

// Of a parameter and what it is compared with: sums of squares of a chunk, norms of a tensor.
struct NormPair {
  double parameter, other;
};

struct TrustTables {
  UpdateTable chunks;
  const TensorChunks* tensors = nullptr;  // device memory
  int64_t tensor_count = 0;
  NormPair* sums = nullptr;   // scratch: of each chunk
  NormPair* norms = nullptr;  // scratch: of each tensor
};

// Rule: SgdRule with or without plain momentum.
template <typename Rule>
void launch_lars_update(const TrustTables& tables, const Rule& rule, const LarsTrust& trust,
                        const StepState* state, CudaStream stream);
void launch_lamb_update(const TrustTables& tables, const LambRule& rule, const StepState* state,
                        CudaStream stream);

}  // namespace dltrain

// What a value is for, and with that how it lives: within a micro-step, within a step, or for the
// run; whether micro-steps add to it; whether ranks add it up; whether a checkpoint keeps it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace dltrain {

enum class Role : uint8_t {
  activation,     // lives within a micro-step (or within the update segment)
  input,          // a slot that the host fills before a micro-step
  output,         // what the host reads after a micro-step, before the next (logits)
  step_state,     // the one StepState
  gradient,       // of a parameter
  statistic,      // sums that a state update consumes once a step (batch statistics)
  metric,         // sums that the host reads once a step (loss, right answers)
  parameter,      // f32 master
  low_precision,  // bf16 or f16 copy of a parameter, written by the update
  buffer,         // state that training moves but no gradient reaches (running statistics)
  moment,         // optimizer state
  ema,            // averaged parameters
  carried,        // recurrent state carried from step to step
  scale,          // loss scale, FP8 amax history
  constant,       // weights that nothing changes, from elsewhere (a teacher's)
  cache,          // what is kept of texts that are being continued (ops/cached_attention.h)
  pass,           // recurrent state that goes on from batch to batch within a pass of evaluation
  partial,        // sums over some of the micro-batches of a step (ops/tree_sum.cpp)
};

struct RoleRules {
  Role role;
  std::string_view name;  // plural, as reports print it
  bool persistent;        // keeps its address and content over the whole step, and longer
  bool accumulates;       // overwritten by the first micro-step, added to by the others
  bool reduced;           // summed over the data-parallel ranks before the update
  bool checkpointed;      // part of a checkpoint
  bool guarded;           // not written by a step with non-finite gradients
};

// One row a role, in enum order.
std::span<const RoleRules> role_table();
const RoleRules& rules_of(Role role);

}  // namespace dltrain

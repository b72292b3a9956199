// The purpose of a value. It determines the value's lifetime (micro-step, step or run) and if it is
// summed over micro-steps and ranks and saved in checkpoints.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace dltrain {

enum class Role : uint8_t {
  activation,     // lives within a micro-step (or within the update segment)
  input,          // a slot that the host fills before a micro-step
  output,         // read by the host after each micro-step (logits)
  step_state,     // the one StepState
  gradient,       // of a parameter
  statistic,      // sums that a state update consumes once a step (batch statistics)
  metric,         // sums that the host reads once a step (loss, correct predictions)
  parameter,      // f32 master
  low_precision,  // bf16 or f16 copy of a parameter, written by the update
  buffer,         // state updated in training without a gradient (running statistics)
  moment,         // optimizer state
  ema,            // averaged parameters
  carried,        // recurrent state carried from step to step
  constant,       // weights that are never updated (those of a teacher, of a frozen base)
  cache,          // state of texts during generation (ops/cached_attention.h)
  pass,           // recurrent state carried from batch to batch within an evaluation pass
  partial,        // sums over some of the micro-batches of a step (ops/tree_sum.cpp)
};

struct RoleRules {
  Role role;
  std::string_view name;  // plural, as reports print it
  bool persistent;        // keeps its address and content over the whole step, and longer
  bool accumulates;       // overwritten by the first micro-step, added to by the others, and summed
                          // over the data-parallel ranks before the update
  bool checkpointed;      // part of a checkpoint, and not written by a step that is not finite
};

// One row per role, in enum order.
std::span<const RoleRules> role_table();
const RoleRules& rules_of(Role role);

}  // namespace dltrain

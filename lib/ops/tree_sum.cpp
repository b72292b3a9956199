// tree_sum(step_state, x₁ … xₙ, then for each level x's n partial sums): adds micro-batches of a
//   step as one binary tree over their index in the global batch, so that the bits of sums do not
//   depend on the assignment of micro-batches to ranks and micro-steps (training.reduction: fixed).
//
//   x is the sum of this rank's micro-batch a = sample_offset / micro_batch mod micro_steps
//   (StepInputs::sample_offset). Complete pairs are added: for level k = 0, 1, … while bit k of a
//   is set, x ← partialₖ + x. Then partialₖ ← x; but after the last micro-batch all pending partial
//   sums are added, from the lowest level, and x is the rank's sum. With micro_steps a power of two
//   (or one rank) that is a node of the tree whose upper part comm/reduce.h adds over the ranks:
//   pairs of neighbours, pairs of pairs, and so on. x and the partial sums alike in shape, one
//   floating dtype, written in place. Attributes: count (n), levels (⌈log₂ micro_steps⌉),
//   micro_batch, micro_steps.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_tree_sum(SpecSpan inputs, const Attributes& attributes) {
  const auto count = static_cast<size_t>(attributes.integer("count"));
  const auto levels = static_cast<size_t>(attributes.integer("levels"));
  const size_t wanted = 1 + count * (1 + levels);
  expect_inputs("tree_sum", inputs, wanted, wanted);
  expect_step_state("tree_sum", inputs[0]);
  for (size_t i = 1; i < inputs.size(); ++i) {
    expect_dtype("tree_sum", "a sum", inputs[i], inputs[1].dtype);
    expect_shape("tree_sum", "a partial sum", inputs[i].shape, inputs[1 + (i - 1) % count].shape);
  }
  check_internal(attributes.integer("micro_batch") > 0 &&
                     attributes.integer("micro_steps") <= (int64_t{1} << levels),
                 "tree_sum of {} micro-steps in {} levels", attributes.integer("micro_steps"),
                 levels);
  return {inputs.begin() + 1, inputs.end()};
}

std::vector<int> aliases_tree_sum(SpecSpan inputs, const Attributes&) {
  std::vector<int> out;
  for (int i = 1; i < static_cast<int>(inputs.size()); ++i) out.push_back(i);
  return out;
}

}  // namespace

constinit const OpDef kTreeSumOp{.name = "tree_sum",
                                 .doc = "adds micro-batches as one binary tree over their index",
                                 .infer = infer_tree_sum,
                                 .aliases = aliases_tree_sum,
                                 .has_effect = true,
                                 .combines_micro_steps = true};

}  // namespace dltrain

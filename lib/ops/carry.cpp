// Recurrent state carried from batch to batch: row r belongs to the r-th of R parallel streams,
// sample r of the global batch. The rows of a micro-batch begin at StepInputs::sample_offset.
//
//   carried_state(step_state, state [R, width]) → [samples, width]
//     The rows of this micro-batch; zeros where StepInputs::step is a multiple of `steps`: there
//     the streams begin. Attributes: samples, steps.
//   carry_state(step_state, x [samples, width]) → [R, width]
//     x in its rows, zeros in all others: the sum over micro-steps and ranks is the state of the
//     whole global batch. Attributes: rows (R).
//   carry_state_in_place(step_state, x [samples, width], state [R, width]) → state
//     Writes x into its rows: for evaluation, which has no update and whose ranks need not agree.
//   carried_update(step_state, state, next) → state
//     state ← next; like every write to state it is skipped in a step that is not finite.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_read(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("carried_state", inputs, 2, 2);
  expect_step_state("carried_state", inputs[0]);
  const Shape& state = inputs[1].shape;
  expect_rank("carried_state", "the state", state, 2, 2);
  const int64_t samples = attributes.integer("samples");
  check_internal(samples > 0 && state[0] % samples == 0 && attributes.integer("steps") > 0,
                 "carried_state: {} samples of {}", samples, to_string(state));
  return {{Shape{samples, state[1]}, inputs[1].dtype}};
}

void expect_rows_carry(std::string_view op, SpecSpan inputs, int64_t rows) {
  expect_step_state(op, inputs[0]);
  expect_rank(op, "x", inputs[1].shape, 2, 2);
  const int64_t samples = inputs[1].shape[0];
  check_internal(samples > 0 && rows % samples == 0, "{}: {} rows of {}", op, samples, rows);
}

SpecList infer_carry(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("carry_state", inputs, 2, 2);
  const int64_t rows = attributes.integer("rows");
  expect_rows_carry("carry_state", inputs, rows);
  return {{Shape{rows, inputs[1].shape[1]}, inputs[1].dtype}};
}

SpecList infer_in_place(SpecSpan inputs, const Attributes&) {
  constexpr std::string_view kOp = "carry_state_in_place";
  expect_inputs(kOp, inputs, 3, 3);
  expect_one_float_dtype(kOp, inputs.subspan(1));
  expect_rows_carry(kOp, inputs, inputs[2].shape[0]);
  expect_shape(kOp, "the state", inputs[2].shape, {inputs[2].shape[0], inputs[1].shape[1]});
  return {inputs[2]};
}
std::vector<int> aliases_in_place(SpecSpan, const Attributes&) {
  return {2};
}

SpecList infer_carry_update(SpecSpan inputs, const Attributes&) {
  expect_inputs("carried_update", inputs, 3, 3);
  expect_step_state("carried_update", inputs[0]);
  expect_one_float_dtype("carried_update", inputs.subspan(1));
  expect_shape("carried_update", "what follows", inputs[2].shape, inputs[1].shape);
  return {inputs[1]};
}
std::vector<int> aliases_carry_update(SpecSpan, const Attributes&) {
  return {1};
}

}  // namespace

constinit const OpDef kCarriedStateOp{.name = "carried_state",
                                      .doc = "recurrent state carried from the previous batch",
                                      .infer = infer_read};
constinit const OpDef kCarryStateOp{.name = "carry_state",
                                    .doc = "state of a micro-batch as rows of the global batch",
                                    .infer = infer_carry};
constinit const OpDef kCarryStateInPlaceOp{.name = "carry_state_in_place",
                                           .doc = "writes the state of a micro-batch in place",
                                           .infer = infer_in_place,
                                           .aliases = aliases_in_place,
                                           .has_effect = true};
constinit const OpDef kCarriedUpdateOp{.name = "carried_update",
                                       .doc = "stores recurrent state for the next batch",
                                       .infer = infer_carry_update,
                                       .aliases = aliases_carry_update,
                                       .has_effect = true};

}  // namespace dltrain

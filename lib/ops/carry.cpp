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

namespace dltrain {
namespace {

void check_samples(int64_t rows, int64_t samples) {
  check_internal(samples > 0 && rows % samples == 0, "recurrent state: {} samples of {}", samples,
                 rows);
}
void check_read(SpecSpan inputs, const Attributes& attributes) {
  check_samples(inputs[1].shape[0], attributes.integer("samples"));
  check_internal(attributes.integer("steps") > 0, "carried_state without steps");
}
void check_rows(SpecSpan inputs, const Attributes& attributes) {
  check_samples(attributes.integer("rows"), inputs[1].shape[0]);
}
void check_in_place(SpecSpan inputs, const Attributes&) {
  check_samples(inputs[2].shape[0], inputs[1].shape[0]);
}

}  // namespace

constinit const OpDef kCarriedStateOp{.name = "carried_state",
                                      .doc = "recurrent state carried from the previous batch",
                                      .signature = "step state[R,W] -> rows[N,W]; N=samples",
                                      .check = check_read};
constinit const OpDef kCarryStateOp{.name = "carry_state",
                                    .doc = "state of a micro-batch as rows of the global batch",
                                    .signature = "step x[N,W] -> state[R,W]; R=rows",
                                    .check = check_rows};
constinit const OpDef kCarryStateInPlaceOp{.name = "carry_state_in_place",
                                           .doc = "writes the state of a micro-batch in place",
                                           .signature = "step x[N,W] state[R,W] -> state!",
                                           .check = check_in_place,
                                           .has_effect = true};
constinit const OpDef kCarriedUpdateOp{.name = "carried_update",
                                       .doc = "stores recurrent state for the next batch",
                                       .signature = "step state[*] next[*] -> state!",
                                       .has_effect = true};

}  // namespace dltrain

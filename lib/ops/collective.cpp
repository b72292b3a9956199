// all_reduce_begin(x₁ … xₙ): starts the sum of the tensors over all ranks, in place, as a message.
//   The planner places the tensors of one bucket adjacently (with alignment gaps that stay zero),
//   so that they are one range of memory from the first to the end of the last. Attribute: slot
//   (integer).
// all_reduce_end(x₁ … xₙ): later work waits for the sum of the same slot.
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_collective(SpecSpan inputs, const Attributes&) {
  expect_inputs("all_reduce", inputs, 1, SIZE_MAX);
  for (const TensorSpec& spec : inputs) {
    if (spec.dtype != inputs[0].dtype) expect_one_float_dtype("all_reduce", inputs);
  }
  return SpecList(inputs.begin(), inputs.end());
}

std::vector<int> aliases_collective(SpecSpan inputs, const Attributes&) {
  std::vector<int> out(inputs.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int>(i);
  return out;
}

}  // namespace

constinit const OpDef kAllReduceBeginOp{.name = "all_reduce_begin",
                                        .doc = "starts the sum over all ranks, in place",
                                        .infer = infer_collective,
                                        .aliases = aliases_collective,
                                        .has_effect = true,
                                        .message = MessageKind::all_reduce,
                                        .slot = SlotUse::begins};
constinit const OpDef kAllReduceEndOp{.name = "all_reduce_end",
                                      .doc = "waits for the sum over all ranks",
                                      .infer = infer_collective,
                                      .aliases = aliases_collective,
                                      .has_effect = true,
                                      .message = MessageKind::all_reduce,
                                      .slot = SlotUse::ends};

}  // namespace dltrain

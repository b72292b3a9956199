// Ops for decoding, a few tokens at a time. The state of a text is kept between calls in a slot;
// positions, counts and slots are i32 [samples]: the first token of a sample is at positions[n] of
// the text in slot slots[n], and counts[n] of the tokens are valid (the others are padding).
//
// token_positions(positions) → i32 [samples, tokens]: the position of every token, at most limit −
// 1.
//   Attributes: tokens, limit (integers).
// last_token(x [samples, tokens, …], counts) → [samples, 1, …]: the last valid token (where
//   there is none, the first one).
// slot_state(state [slots, …], positions, slots) → [samples, …]: the content of the slots; 0 for
//   texts that begin (positions[n] = 0).
// slot_state_update(state [slots, …], y [samples, tokens, …], counts, slots) → the state, in place:
//   slot slots[n] gets the last valid token of y; unchanged where there is none.
//
// Nothing flows back.
#include <algorithm>

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

void expect_samples(std::string_view op, const TensorSpec& found, int64_t samples) {
  expect_dtype(op, "positions, counts and slots", found, DType::i32);
  expect_shape(op, "positions, counts and slots", found.shape, Shape{samples});
}

Shape with_extent(const Shape& shape, int axis, int64_t extent) {
  Shape out = shape;
  out[axis] = extent;
  return out;
}

SpecList infer_token_positions(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("token_positions", inputs, 1, 1);
  expect_rank("token_positions", "positions", inputs[0].shape, 1, 1);
  expect_dtype("token_positions", "positions", inputs[0], DType::i32);
  const int64_t tokens = attributes.integer("tokens");
  check_internal(tokens > 0 && attributes.integer("limit") > 0, "token_positions: no tokens");
  return {{Shape{inputs[0].shape[0], tokens}, DType::i32}};
}

SpecList infer_last_token(SpecSpan inputs, const Attributes&) {
  expect_inputs("last_token", inputs, 2, 2);
  expect_rank("last_token", "the tokens", inputs[0].shape, 3, Shape::kMaxRank);
  expect_samples("last_token", inputs[1], inputs[0].shape[0]);
  return {{with_extent(inputs[0].shape, 1, 1), inputs[0].dtype}};
}

SpecList infer_slot_state(SpecSpan inputs, const Attributes&) {
  expect_inputs("slot_state", inputs, 3, 3);
  expect_rank("slot_state", "the state", inputs[0].shape, 2, Shape::kMaxRank);
  expect_rank("slot_state", "positions", inputs[1].shape, 1, 1);
  const int64_t samples = inputs[1].shape[0];
  for (size_t i : {1, 2}) expect_samples("slot_state", inputs[i], samples);
  return {{with_extent(inputs[0].shape, 0, samples), inputs[0].dtype}};
}

SpecList infer_slot_state_update(SpecSpan inputs, const Attributes&) {
  constexpr std::string_view op = "slot_state_update";
  expect_inputs(op, inputs, 4, 4);
  const Shape &state = inputs[0].shape, &y = inputs[1].shape;
  expect_rank(op, "the state", state, 2, Shape::kMaxRank - 1);
  expect_rank(op, "the tokens", y, state.rank() + 1, state.rank() + 1);
  expect_dtype(op, "the tokens", inputs[1], inputs[0].dtype);
  std::vector<int64_t> wanted{y[0], y[1]};
  wanted.insert(wanted.end(), state.begin() + 1, state.end());
  expect_shape(op, "the tokens", y, Shape(wanted));
  for (size_t i : {2, 3}) expect_samples(op, inputs[i], y[0]);
  return {inputs[0]};
}

std::vector<int> update_aliases(SpecSpan, const Attributes&) {
  return {0};
}

}  // namespace

constinit const OpDef kTokenPositionsOp{.name = "token_positions",
                                        .doc = "the position of every token in its text",
                                        .infer = infer_token_positions,
                                        .makes_tokens = true};
constinit const OpDef kLastTokenOp{
    .name = "last_token", .doc = "the last token that is not padding", .infer = infer_last_token};
constinit const OpDef kSlotStateOp{.name = "slot_state",
                                   .doc = "reads the state of texts from their slots",
                                   .infer = infer_slot_state,
                                   .token_axis = no_tokens};
constinit const OpDef kSlotStateUpdateOp{.name = "slot_state_update",
                                         .doc = "writes the last token of texts to their slots",
                                         .infer = infer_slot_state_update,
                                         .aliases = update_aliases,
                                         .has_effect = true,
                                         .token_axis = no_tokens};

}  // namespace dltrain

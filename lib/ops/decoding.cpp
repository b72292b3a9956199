// Ops for decoding, a few tokens at a time. The state of a text is kept between calls in a slot;
// positions, counts and slots are i32 [samples]: the first token of a sample is at positions[n] of
// the text in slot slots[n], and counts[n] of the tokens are valid (the others are padding).
//
// token_positions(positions) → i32 [samples, tokens]: the position of every token, below limit.
//   Attributes: tokens, limit (integers).
// last_token(x [samples, tokens, …], counts) → [samples, 1, …]: the last valid token (where
//   there is none, the first one).
// slot_state(state [slots, …], positions, slots) → [samples, …]: the content of the slots; 0 for
//   texts that begin (positions[n] = 0).
// slot_state_update(state [slots, …], y [samples, tokens, …], counts, slots) → the state, in place:
//   slot slots[n] gets the last valid token of y; unchanged where there is none.
//
// Nothing flows back.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

void check_token_positions(SpecSpan, const Attributes& attributes) {
  const int64_t tokens = attributes.integer("tokens");
  check_internal(tokens > 0 && attributes.integer("limit") > 0, "token_positions: no tokens");
}

}  // namespace

constinit const OpDef kTokenPositionsOp{
    .name = "token_positions",
    .doc = "the position of every token in its text",
    .signature = "positions[N]:i32 -> of_tokens[N,T]:i32; T=tokens",
    .check = check_token_positions,
    .makes_tokens = true};
constinit const OpDef kLastTokenOp{.name = "last_token",
                                   .doc = "the last token that is not padding",
                                   .signature = "x[N,T,*] counts[N]:i32 -> last[N,1,*]"};
constinit const OpDef kSlotStateOp{
    .name = "slot_state",
    .doc = "reads the state of texts from their slots",
    .signature = "state[S,*] positions[N]:i32 slots[N]:i32 -> y[N,*]",
    .token_axis = no_tokens};
constinit const OpDef kSlotStateUpdateOp{
    .name = "slot_state_update",
    .doc = "writes the last token of texts to their slots",
    .signature = "state[S,*] y[N,T,*] counts[N]:i32 slots[N]:i32 -> state!",
    .has_effect = true,
    .token_axis = no_tokens};

}  // namespace dltrain

// Rules that OpDef::token_axis of several ops shares. Decoding with cached state needs every token
// to depend on itself and earlier tokens only.
#pragma once

#include "ops/op.h"

namespace dltrain {

int tokens_of_first(const TokenAxes& node);     // as the first input; no other one has tokens
int tokens_before_last(const TokenAxes& node);  // likewise, for ops that work along the last axis
int tokens_at_one(const TokenAxes& node);       // the first input counts them along axis 1
int tokens_of_elements(const TokenAxes& node);  // operands are aligned at their last axes
int tokens_within_borders(const TokenAxes& node);  // of slice and pad: not along their axis
int no_tokens(const TokenAxes& node);

// Rules of OpDef::localize_tokens: for the attribute `shape` of the output, for ops that depend on
// the positions of tokens, and of their elements.
void localize_token_shape(Attributes& attributes, const TokenNode& node);
void localize_token_positions(Attributes& attributes, const TokenNode& node);
void localize_token_elements(Attributes& attributes, const TokenNode& node);

// Returns 1 if the first `count` inputs count tokens along axis 1.
int tokens_at_one(const TokenAxes& node, size_t count);

}  // namespace dltrain

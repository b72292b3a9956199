// Models that continue texts: what layers emit for when tokens come a few at a time, and what went
// before is kept in state (role cache) instead of being computed again. A layer that looks at
// other tokens asks decoding_of(); layers that work token by token know nothing of it.
// What is not made of those tokens is seen as a whole: the source that an encoder reads.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "graph/graph.h"

namespace dltrain {

class LayerContext;

// One a graph. A graph takes `samples` texts and the same number of tokens of each; the state has
// room for `slots` texts.
struct Decoding {
  int64_t slots = 1;
  int64_t capacity = 64;  // tokens of a text, for layers that keep something of each
  // The tokens, where the model has other inputs besides; kNoValue: everything is made of them.
  ValueId tokens = kNoValue;
  // i32 [samples]: the place of the first of the tokens in its text, how many of the tokens are
  // there (the others are padding), and the slot of the text.
  ValueId positions = kNoValue, counts = kNoValue, slot_ids = kNoValue;
  // The shape that the trained model's parameter of this name has; nullptr: it has none.
  std::function<const Shape*(const std::string& name)> trained = {};

  // What layers say: how many places they have at most, and whether anything is kept of each token.
  std::optional<int64_t> max_positions = {};
  bool keeps_tokens = false;

  void limit_positions(int64_t places) {
    if (!max_positions || places < *max_positions) max_positions = places;
  }
};

// Where the model continues texts, and `x` is made of the tokens of one; nullptr: x is seen as a
// whole. Layers that look at other tokens of x ask this, not LayerContext::decoding().
Decoding* decoding_of(LayerContext& context, ValueId x);

// The op `attention` on `inputs` (queries, keys and values, or packed; then perhaps mask and step
// state); where its keys are tokens of texts that are continued, cached_attention. Throws
// Error(usage) where attention that is not causal, or masked, cannot continue texts.
ValueId emit_attention(LayerContext& context, std::vector<ValueId> inputs, Attributes attributes);

// State "cache.<path of the layer>.<name>" of the graph.
ValueId add_cache(LayerContext& context, const std::string& name, const TensorSpec& spec);

}  // namespace dltrain

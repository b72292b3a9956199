// Models that generate text: a graph takes a few further tokens, and layers cache results of
// earlier tokens in state (role cache) instead of computing them again. A layer that uses other
// tokens calls decoding_of(); layers that work token by token need no change. Values that do not
// depend on these tokens, such as the source of an encoder, are complete.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "graph/graph.h"

namespace dltrain {

class LayerContext;

// One for each graph. A graph takes `samples` texts and the same number of tokens of each; the
// state has room for `slots` texts.
struct Decoding {
  int64_t slots = 1;
  int64_t capacity = 64;  // tokens of a text, for layers that cache something for each token
  // The tokens, if the model has other inputs too; kNoValue: everything depends on them.
  ValueId tokens = kNoValue;
  // i32 [samples]: the position of the first token in its text, the number of tokens (the others
  // are padding), and the slot of the text.
  ValueId positions = kNoValue, counts = kNoValue, slot_ids = kNoValue;
  // Returns the shape of the trained model's parameter of this name, or nullptr if there is none.
  std::function<const Shape*(const std::string& name)> trained = {};

  // Layers set these: the greatest number of positions, and whether they cache a value for each
  // token.
  std::optional<int64_t> max_positions = {};
  bool keeps_tokens = false;

  void limit_positions(int64_t limit) {
    if (!max_positions || limit < *max_positions) max_positions = limit;
  }
};

// Returns the decoding if the model generates text and `x` depends on its tokens; nullptr: x is
// complete. Layers that use other tokens of x call this, not LayerContext::decoding().
Decoding* decoding_of(LayerContext& context, ValueId x);

// Emits `attention` on `inputs` (queries, keys and values, or packed; then optionally mask and step
// state), or cached_attention if its keys are tokens of generated texts. Throws Error(usage) if
// attention is not causal or masked, and so cannot generate text.
ValueId emit_attention(LayerContext& context, std::vector<ValueId> inputs, Attributes attributes);

// Adds the state "cache.<path of the layer>.<name>" to the graph.
ValueId add_cache(LayerContext& context, const std::string& name, const TensorSpec& spec);

}  // namespace dltrain

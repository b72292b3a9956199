// The graph by which a language model continues texts: `tokens` further tokens of each of `samples`
// texts in, the logits of what follows the last of them out. What was computed of the tokens before
// stands in state of role cache, so that nothing is computed twice.
//
//   emit → last token → averages → autocast → dead code → fuse
//
// One model has several such graphs over the same state: of many tokens for the prompt, and of one
// for every token after it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/decoding.h"
#include "nn/model.h"

namespace dltrain {

struct DecodeRequest {
  const ModelConfig& model;
  std::string input = "input";  // what the data calls the tokens
  int64_t vocabulary = 0;       // where the model has no vocab_size; 0: unknown
  int64_t samples = 1, tokens = 1;
  int64_t slots = 1, capacity = 64;  // nn/decoding.h
  DType compute = DType::f32;        // f64 on the reference engine
  DType precision = DType::f32;
  bool narrow_parameters = false;  // state is that of a run with precision.parameters: bf16
  // Every row of a matrix product has the same bits whatever other rows there are
  // (ops/matmul.cpp): the texts do not depend on each other. For few rows.
  bool independent_rows = true;
  // The shapes of the trained model's parameters (Decoding::trained).
  std::function<const Shape*(const std::string& name)> trained = {};
  // Whether there is an average of a parameter that is to be read instead; empty: of none.
  std::function<bool(const std::string& name)> has_average = {};
};

struct DecodeGraph {
  Graph graph;
  ValueId tokens, positions, counts, slots;  // inputs, i32 [samples, tokens] and [samples]
  ValueId output = kNoValue;                 // logits f32 [samples, 1, vocabulary]
  std::vector<ParameterInfo> parameters;     // and buffers, in order of emission
  int64_t vocabulary = 0;
  std::optional<int64_t> max_positions;  // a text has at most so many tokens; absent: any number
  bool keeps_tokens = false;             // state grows with the capacity
};

// Throws ConfigError, or Error(usage) with the layer as its place, for a model that cannot continue
// texts: it looks at later tokens, takes more than token ids, or gives no logits for each token.
DecodeGraph build_decode_graph(const DecodeRequest& request);

}  // namespace dltrain

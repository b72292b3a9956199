// The graph by which a language model generates text. Input: `tokens` further tokens for each of
// `samples` texts; output: the logits of the token after the last one. Intermediate results of
// earlier tokens are in state of role cache, so that nothing is computed twice.
//
//   emit → cut off the source → last token → averages → autocast → dead code → fuse
//
// One model has several such graphs over the same state: one with many tokens for the prompt, one
// with a single token for generation. For encoder-decoder models another graph computes, once per
// text, the values that depend on the source alone (compile/source_cut.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/decoding.h"
#include "nn/model.h"
#include "passes/precision_config.h"

namespace dltrain {

// The source text of an encoder-decoder model: inputs `source` [samples, length] and perhaps
// `source_lengths` [samples].
struct SourceRequest {
  int64_t length = 0;   // with padding
  bool lengths = true;  // the input `source_lengths` exists
};

struct DecodeRequest {
  const ModelConfig& model;
  std::string input = "input";  // name of the token input in the data
  std::optional<SourceRequest> source = {};
  int64_t vocabulary = 0;  // used if the model has no vocab_size; 0: unknown
  int64_t samples = 1, tokens = 1;
  int64_t slots = 1, capacity = 64;  // nn/decoding.h
  DType compute = DType::f32;        // f64 on the reference engine
  PrecisionConfig precision = {};    // with compute f32
  bool narrow_parameters = false;    // the state comes from a run with precision.parameters: bf16
  // The bits of a row of a matrix product do not depend on the other rows (ops/matmul.cpp), so
  // texts do not influence each other. Only efficient for few rows.
  bool independent_rows = true;
  // The shapes of the trained model's parameters (Decoding::trained).
  std::function<const Shape*(const std::string& name)> trained = {};
  // Returns true if the average of this parameter exists and is read instead; empty: never.
  std::function<bool(const std::string& name)> has_average = {};
};

struct DecodeGraph {
  Graph graph;
  ValueId tokens, positions, counts, slots;  // inputs, i32 [samples, tokens] and [samples]
  // i32 [samples]: the lengths of the sources; kNoValue if the model does not read them.
  ValueId source_lengths = kNoValue;
  ValueId output = kNoValue;              // logits f32 [samples, 1, vocabulary]
  std::vector<ParameterInfo> parameters;  // and buffers, in order of emission
  int64_t vocabulary = 0;
  std::optional<int64_t> max_positions;  // most tokens of a text; absent: unlimited
  bool keeps_tokens = false;             // the size of the state grows with the capacity
};

// Throws ConfigError, or Error(usage) with the layer as its place, for a model that cannot generate
// text: it attends to later tokens, has inputs other than token ids, or has no logits for each
// token.
DecodeGraph build_decode_graph(const DecodeRequest& request);

// Graph over the source of one text; writes the values that decoding reads into state.
struct SourceGraph {
  Graph graph;
  ValueId source = kNoValue, source_lengths = kNoValue;  // i32 [1, length], [1] or kNoValue
  ValueId counts = kNoValue, slots = kNoValue;           // i32 [1]: 1, and the slot
  std::vector<ParameterInfo> parameters;
};

// Requires a source; ignores samples and tokens. Throws as build_decode_graph does.
SourceGraph build_source_graph(const DecodeRequest& request);

}  // namespace dltrain

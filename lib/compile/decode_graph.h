// The graph by which a language model continues texts: `tokens` further tokens of each of `samples`
// texts in, the logits of what follows the last of them out. What was computed of the tokens before
// stands in state of role cache, so that nothing is computed twice.
//
//   emit → cut off the source → last token → averages → autocast → dead code → fuse
//
// One model has several such graphs over the same state: of many tokens for the prompt, and of one
// for every token after it. Where texts have a source, which an encoder reads, another graph
// computes once a text what is made of the source alone (compile/source_cut.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/decoding.h"
#include "nn/model.h"

namespace dltrain {

// The source of a text: inputs `source` [samples, length] and perhaps `source_lengths` [samples].
struct SourceRequest {
  int64_t length = 0;   // with padding
  bool lengths = true;  // whether there is that input
};

struct DecodeRequest {
  const ModelConfig& model;
  std::string input = "input";  // what the data calls the tokens
  std::optional<SourceRequest> source = {};
  int64_t vocabulary = 0;  // where the model has no vocab_size; 0: unknown
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
  // i32 [samples], where the texts have a source: how long it is, and whether that is read.
  ValueId source_lengths = kNoValue;
  ValueId output = kNoValue;              // logits f32 [samples, 1, vocabulary]
  std::vector<ParameterInfo> parameters;  // and buffers, in order of emission
  int64_t vocabulary = 0;
  std::optional<int64_t> max_positions;  // a text has at most so many tokens; absent: any number
  bool keeps_tokens = false;             // state grows with the capacity
};

// Throws ConfigError, or Error(usage) with the layer as its place, for a model that cannot continue
// texts: it looks at later tokens, takes more than token ids, or gives no logits for each token.
DecodeGraph build_decode_graph(const DecodeRequest& request);

// One text's source in, what the texts of a slot read of it out, into state of role cache.
struct SourceGraph {
  Graph graph;
  ValueId source = kNoValue, source_lengths = kNoValue;  // i32 [1, length], [1] or kNoValue
  ValueId counts = kNoValue, slots = kNoValue;           // i32 [1]: 1, and the slot
  std::vector<ParameterInfo> parameters;
};

// Of a request with a source; samples and tokens do not matter. Throws as build_decode_graph does.
SourceGraph build_source_graph(const DecodeRequest& request);

}  // namespace dltrain

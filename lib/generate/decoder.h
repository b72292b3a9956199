// A language model that continues several texts at a time: weights, what is kept of each text in
// its slot, and the plans that take further tokens.
//
// A prompt is taken by plans of one text and many tokens, what follows by a plan of one token of
// every text. Where texts have a source, a plan of its own reads it, once a text. Texts do not
// depend on each other, to the bit: not on how many there are, nor on their slots.
//
// Memory: weights are the decoder's own, or lie elsewhere (in the arena of a training run). All of
// it is taken when the decoder is made, but that of a plan for prompts of another length.
//
// Threads: used by one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/decode_graph.h"
#include "graph/plan.h"

namespace dltrain {

struct DecoderOptions {
  const Engine* engine = nullptr;
  Device* device = nullptr;  // outlives the decoder
  // samples, tokens, slots, capacity and independent_rows are the decoder's matter. What it refers
  // to outlives the decoder.
  DecodeRequest request;
  int64_t slots = 1;
  // Tokens of the longest text; cut to what the model has places for.
  int64_t capacity = 64;
  // Where a state lies that others own; nullptr, or absent: the decoder owns it.
  std::function<std::byte*(const std::string& name)> state = {};
};

// What a model can do, without taking memory. Throws as build_decode_graph does.
struct DecoderInfo {
  std::optional<int64_t> max_positions;
  int64_t vocabulary = 0;  // logits of a token
  int64_t ids = 0;         // tokens that it takes: 0 to ids − 1
  bool keeps_tokens = false;
  // Of the source that a text has; absent: it has none.
  std::optional<int64_t> source_length = {};
  int64_t source_ids = 0;
};
DecoderInfo decoder_info(const DecodeRequest& request);

// A state that the decoder owns.
struct OwnedState {
  TensorSpec spec;
  size_t offset = 0;
};

// Memory that a decoder takes, with the plans for prompts of up to `longest` tokens; nothing is
// taken.
size_t decoder_bytes(const DecoderOptions& options, int64_t longest);

class Decoder {
 public:
  // Throws Error(memory), and Error(usage) for an op without a kernel.
  explicit Decoder(const DecoderOptions& options);
  ~Decoder();

  const DecoderInfo& info() const { return info_; }
  int64_t slots() const { return options_.slots; }
  int64_t capacity() const { return capacity_; }
  size_t bytes() const;

  // The parameters that a model of its own has to be given, and the giving: f32 elements in memory
  // order. What no plan reads is passed over.
  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  void write_parameter(std::string_view name, std::span<const float> values);

  // Takes the source of the text that begins in a slot, before its tokens: at most
  // info().source_length of them, filled up with `padding`.
  void read_source(int64_t slot, std::span<const int32_t> tokens, int32_t padding);
  // Takes tokens of one text, the first of them at place `position`, and returns the logits of
  // what follows; valid until the next call.
  std::span<const float> prefill(int64_t slot, std::span<const int32_t> tokens, int64_t position);
  // One further token of each slot; the slot is left alone where there is none (token −1). Returns
  // the logits [slots, vocabulary].
  struct Next {
    int32_t token = -1, position = 0;
  };
  std::span<const float> step(std::span<const Next> next);

 private:
  struct Part;    // a plan with its memory
  struct Source;  // likewise, of sources

  Part& prompt_part(size_t tokens);
  std::unique_ptr<Part> make_part(int64_t samples, int64_t tokens);
  std::byte* address(const std::string& name) const;
  void run(Part& part, std::span<const int32_t> tokens, std::span<const int32_t> positions,
           std::span<const int32_t> counts, std::span<const int32_t> slots);

  DecoderOptions options_;
  DecoderInfo info_;
  int64_t capacity_;
  std::vector<ParameterInfo> parameters_;
  std::map<std::string, OwnedState, std::less<>> owned_;
  Buffer state_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Part> step_;
  std::map<int64_t, std::unique_ptr<Part>> prompts_;  // by number of tokens
  std::unique_ptr<Source> source_;                    // null: texts have none
  std::vector<int32_t> source_lengths_;               // by slot
  std::vector<float> logits_;
};

}  // namespace dltrain

// A language model that continues several texts at a time: weights, the cached state of each text
// in its slot, and the programs for further tokens.
//
// Prompts are processed by programs of one text and many tokens, further tokens by a program of one
// token of every text. If texts have a source, another program reads it, once per text. The results
// of a text do not depend, to the bit, on the number of other texts or on its slot.
//
// Memory: the decoder owns the weights, or they lie elsewhere (in the arena of a training run). All
// memory is allocated by the constructor, except for programs of prompts of another length.
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
#include "runtime/loaded_program.h"
#include "runtime/state_store.h"

namespace dltrain {

struct DecoderOptions {
  const Engine* engine = nullptr;
  Device* device = nullptr;  // outlives the decoder
  // The decoder sets samples, tokens, slots, capacity and independent_rows. Referenced objects
  // outlive the decoder.
  DecodeRequest request;
  int64_t slots = 1;
  // The greatest length of a text in tokens; limited by the positions of the model.
  int64_t capacity = 64;
  // Returns the address of a state that others own; nullptr, or absent: the decoder owns it.
  std::function<std::byte*(const std::string& name)> state = {};
};

// The limits of a model, found without allocating memory. Throws as build_decode_graph does.
struct DecoderInfo {
  std::optional<int64_t> max_positions;
  int64_t vocabulary = 0;  // logits of a token
  int64_t ids = 0;         // valid tokens are 0 to ids − 1
  bool keeps_tokens = false;
  // The length of the source of a text; absent: texts have no source.
  std::optional<int64_t> source_length = {};
  int64_t source_ids = 0;
};
DecoderInfo decoder_info(const DecodeRequest& request);

// Returns the memory of a decoder with programs for prompts of up to `longest` tokens, without
// allocating it.
size_t decoder_bytes(const DecoderOptions& options, int64_t longest);

class Decoder final : public StateStore {
 public:
  // Throws Error(memory), and Error(usage) for an op without a kernel.
  explicit Decoder(const DecoderOptions& options);
  ~Decoder() override;

  const DecoderInfo& info() const { return info_; }
  int64_t slots() const { return options_.slots; }
  int64_t capacity() const { return capacity_; }
  size_t bytes() const;

  // The parameters of the model. Writing one that no program reads has no effect; of one that is
  // read in 16 bits only, the copy is written.
  const std::vector<ParameterInfo>& weights() const override;
  void write_state(std::string_view name, std::span<const std::byte> bytes) override;

  // Reads the source of the text in a slot, before its tokens: at most info().source_length tokens,
  // padded with `padding`.
  void read_source(int64_t slot, std::span<const int32_t> tokens, int32_t padding);
  // Processes tokens of one text, the first at `position`, and returns the logits of the next
  // token; valid until the next call.
  std::span<const float> prefill(int64_t slot, std::span<const int32_t> tokens, int64_t position);
  // Processes one further token of each slot; token −1 skips a slot. Returns the logits
  // [slots, vocabulary].
  struct Next {
    int32_t token = -1, position = 0;
  };
  std::span<const float> step(std::span<const Next> next);

 private:
  // A graph with its program and the program's memory.
  template <typename GraphType>
  struct Loaded;
  using Part = Loaded<DecodeGraph>;  // for tokens
  using Source = Loaded<SourceGraph>;

  Part& prompt_part(size_t tokens);
  std::unique_ptr<Part> make_part(int64_t samples, int64_t tokens);
  StateAddress state_addresses() const override;
  void run(Part& part, std::span<const int32_t> tokens, std::span<const int32_t> positions,
           std::span<const int32_t> counts, std::span<const int32_t> slots);

  DecoderOptions options_;
  DecoderInfo info_;
  int64_t capacity_;
  Buffer state_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Part> step_;
  std::map<int64_t, std::unique_ptr<Part>> prompts_;  // by number of tokens
  std::unique_ptr<Source> source_;                    // null: texts have none
  std::vector<int32_t> source_lengths_;               // by slot
  std::vector<float> logits_;
};

}  // namespace dltrain

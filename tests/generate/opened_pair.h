// Small models with an encoder and a decoder, opened to write texts to sources.
#pragma once

#include "generate/opened.h"

namespace dltrain {

inline constexpr int64_t kSource = 11;

struct Kind {
  std::string name, model;
  bool lengths = true;
};

inline const std::vector<Kind> kPairs{
    {"pre", "{type: transformer, num_layers: 2, hidden_size: 24, num_heads: 3, dropout: 0}"},
    {"post", "{type: transformer, norm: post, num_layers: 1, hidden_size: 16, num_heads: 2}"},
    {"without lengths",
     "{type: transformer, num_layers: 1, hidden_size: 16, num_heads: 2, source_lengths: false}",
     false},
    {"recurrent networks, and attention to the states of the first",
     "{layers: [{embedding: {embedding_dim: 8}}, {lstm: 12, name: encoder}, {embedding: "
     "{embedding_dim: 8}, inputs: decoder_input}, {gru: 12, name: decoder}, {attention: "
     "{num_heads: 2}, inputs: [decoder, encoder, encoder, source_lengths]}, {lm_head: {}}]}"}};

inline DecodeRequest request_of(const ModelConfig& model, bool lengths, DType compute,
                                DType precision = DType::f32) {
  return {.model = model,
          .input = "decoder_input",
          .source = SourceRequest{.length = kSource, .lengths = lengths},
          .vocabulary = kIds,
          .compute = compute,
          .precision = computing_in(precision)};
}

struct OpenedPair {
  OpenedPair(const Kind& kind, const Engine& engine, DType compute, int64_t slots,
             DType precision = DType::f32)
      : model(model_of(kind.model)),
        device(engine.open(0)),
        decoder({.engine = &engine,
                 .device = device.get(),
                 .request = request_of(model, kind.lengths, compute, precision),
                 .slots = slots,
                 .capacity = kTokens}) {
    write_weights(decoder);
  }
  ModelConfig model;
  std::unique_ptr<Device> device;
  Decoder decoder;
};

}  // namespace dltrain

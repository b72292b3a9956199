// Layers that let a token look at those after it.
#include "compile/later_tokens.h"

#include "catch.h"
#include "nn/read_model.h"

namespace dltrain {
namespace {

// Returns the layer found for the input `named` of a model with these layers.
std::string layer_of(const std::string& layers, const std::vector<std::string>& inputs = {"input"},
                     const std::string& named = "input") {
  ModelConfig model;
  REQUIRE(read_model("{layers: " + layers + "}", model) == "");
  const auto loss = make_kind(loss_table(), "cross_entropy");
  std::vector<InputSpec> specs;
  for (const std::string& name : inputs) specs.push_back({name, {Shape{6}, DType::i32}});
  const EmittedModel emitted = emit_model({.model = model,
                                           .loss = *loss,
                                           .inputs = specs,
                                           .vocabulary = 7,
                                           .samples = 2,
                                           .training = true});
  return layer_of_later_tokens(emitted.graph, emitted.graph.find("input." + named));
}

TEST_CASE("attention that is not causal and networks that run backwards are found") {
  const auto between = [](const std::string& middle) {
    return layer_of("[{embedding: {embedding_dim: 8}}, " + middle + ", {lm_head: {}}]");
  };
  CHECK(between("{multi_head_attention: {num_heads: 2, causal: true}}").empty());
  CHECK(between("{multi_head_attention: 2}") == "layers.1");
  CHECK(between("{residual: [{linear: 24}, {attention: {num_heads: 2, sliding_window: 2}}]}") ==
        "layers.1.1");
  CHECK(between("{lstm: 4}").empty());
  CHECK(between("{gru: {hidden_size: 4, bidirectional: true}}") == "layers.1");
}

TEST_CASE("a decoder may look at all of a source, and not at all of its own text") {
  const auto decoder = [](const std::string& causal) {
    return "[{embedding: {embedding_dim: 8}}, {multi_head_attention: 2, name: encoder}, "
           "{embedding: {embedding_dim: 8}, inputs: decoder_input}, {multi_head_attention: "
           "{num_heads: 2, causal: " +
           causal +
           "}, name: decoder}, {attention: {num_heads: 2}, inputs: [decoder, encoder, encoder], "
           "name: cross}, {lm_head: {}}]";
  };
  const std::vector<std::string> inputs{"source", "decoder_input"};
  CHECK(layer_of(decoder("true"), inputs, "decoder_input").empty());
  CHECK(layer_of(decoder("false"), inputs, "decoder_input") == "decoder");
  CHECK(layer_of(decoder("true"), inputs, "source") == "encoder");
}

}  // namespace
}  // namespace dltrain

// Graphs that generate text: what they keep, where the last token is chosen, what is read.
#include "compile/decode_graph.h"

#include <algorithm>

#include "catch.h"
#include "computing_in.h"
#include "nn/read_model.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

constexpr const char* kGpt2 =
    "{type: gpt2, num_layers: 1, hidden_size: 16, num_heads: 2, max_positions: 32}";
constexpr const char* kLstm =
    "{layers: [{embedding: {embedding_dim: 4}}, {lstm: 6}, {lm_head: {}}]}";

DecodeGraph decode(const std::string& text, int64_t samples, int64_t tokens, int64_t slots,
                   int64_t capacity, DType precision = DType::f32) {
  ModelConfig model;
  REQUIRE(read_model(text, model) == "");
  return build_decode_graph({.model = model,
                             .vocabulary = 11,
                             .samples = samples,
                             .tokens = tokens,
                             .slots = slots,
                             .capacity = capacity,
                             .precision = computing_in(precision),
                             .independent_rows = tokens == 1});
}

std::vector<std::string> names(const Graph& graph, Role role) {
  std::vector<std::string> out;
  for (ValueId id : graph.with_role(role)) out.push_back(graph.value(id).name);
  return out;
}

std::vector<const Node*> nodes_of(const Graph& graph, std::string_view op) {
  std::vector<const Node*> out;
  for (const Node& node : graph.nodes) {
    if (node.op->name == op) out.push_back(&node);
  }
  return out;
}

TEST_CASE("state has room for the slots, not for the texts of a graph") {
  for (int64_t tokens : {1, 16}) {
    const DecodeGraph graph = decode(kGpt2, tokens == 1 ? 3 : 1, tokens, 3, 20);
    const auto caches = graph.graph.with_role(Role::cache);
    REQUIRE(names(graph.graph, Role::cache) ==
            std::vector<std::string>{"cache.h.0.attn.1.keys", "cache.h.0.attn.1.values"});
    CHECK(graph.graph.value(caches[0]).spec.shape == Shape{3, 2, 1, 8, 64});
    CHECK(graph.graph.value(caches[1]).spec.shape == Shape{3, 2, 64, 16});
    CHECK(graph.max_positions == 32);
    CHECK(graph.keeps_tokens);
    CHECK(graph.vocabulary == 11);
  }
  const DecodeGraph lstm = decode(kLstm, 2, 1, 5, 64);
  CHECK(names(lstm.graph, Role::cache) ==
        std::vector<std::string>{"cache.layers.1.h_l0", "cache.layers.1.c_l0"});
  CHECK_FALSE(lstm.max_positions.has_value());
  CHECK_FALSE(lstm.keeps_tokens);
}

TEST_CASE("the head is computed for the last token of a prompt alone") {
  const DecodeGraph graph = decode(kGpt2, 2, 16, 2, 64);
  CHECK(graph.graph.value(graph.output).spec.shape == Shape{2, 1, 11});
  const auto chosen = nodes_of(graph.graph, "last_token");
  REQUIRE(chosen.size() == 1);
  // Before the last norm, after the sum of the last layer.
  for (const Node* norm : nodes_of(graph.graph, "layer_norm")) {
    const bool last = norm->layer == "ln_f";
    CHECK(graph.graph.value(norm->inputs[0]).spec.shape[1] == (last ? 1 : 16));
  }
  for (const Node* product : nodes_of(graph.graph, "matmul")) {
    CHECK_FALSE(product->attributes.boolean("independent_rows"));
  }
  const DecodeGraph step = decode(kGpt2, 2, 1, 2, 64);
  CHECK(nodes_of(step.graph, "last_token").empty());
  for (const Node* product : nodes_of(step.graph, "matmul")) {
    CHECK(product->attributes.boolean("independent_rows"));
  }
}

TEST_CASE("state that no node reads takes no memory") {
  const DecodeGraph wide = decode(kGpt2, 1, 1, 1, 64);
  CHECK(names(wide.graph, Role::low_precision).empty());
  const DecodeGraph low = decode(kGpt2, 1, 1, 1, 64, DType::bf16);
  const auto masters = names(low.graph, Role::parameter);
  const auto has = [&](const char* name) {
    return std::find(masters.begin(), masters.end(), name) != masters.end();
  };
  CHECK(has("wte.weight"));  // rows of the embedding are read in f32
  CHECK(has("ln_f.weight"));
  CHECK_FALSE(has("h.0.mlp.c_fc.weight"));
  const auto copies = names(low.graph, Role::low_precision);
  CHECK(std::find(copies.begin(), copies.end(), "low_precision of wte.weight") != copies.end());
  CHECK(low.parameters.size() == wide.parameters.size());
}

TEST_CASE("recurrent networks that read a source compute in tf32 where all products do") {
  ModelConfig model;
  REQUIRE(read_model("{layers: [{embedding: {embedding_dim: 8}}, {lstm: 12, name: encoder}, "
                     "{embedding: {embedding_dim: 8}, inputs: decoder_input}, {gru: 12, name: "
                     "decoder}, {attention: {num_heads: 2}, inputs: [decoder, encoder, encoder, "
                     "source_lengths]}, {lm_head: {}}]}",
                     model) == "");
  PrecisionConfig precision;
  precision.matmul = ProductMath::tf32;
  const SourceGraph graph = build_source_graph({.model = model,
                                                .input = "decoder_input",
                                                .source = SourceRequest{.length = 11},
                                                .vocabulary = 11,
                                                .precision = precision});
  CHECK(nodes_of(graph.graph, "recurrent").size() == 1);
  for (const Node& node : graph.graph.nodes) {
    if (is_product(*node.op)) CHECK(rounds_to_tf32(node.attributes));
  }
}

TEST_CASE("averages are read where there are some") {
  ModelConfig model;
  REQUIRE(read_model(kLstm, model) == "");
  const DecodeGraph graph = build_decode_graph(
      {.model = model, .vocabulary = 11, .has_average = [](const std::string& name) {
         return name != "layers.0.weight";
       }});
  CHECK(names(graph.graph, Role::parameter) == std::vector<std::string>{"layers.0.weight"});
  CHECK(names(graph.graph, Role::ema).size() == 5);
}

}  // namespace
}  // namespace dltrain

// Language models: names and shapes of all tensors against Hugging Face's
// (scripts/record_golden_language.py), the size of the vocabulary, shared parameters, masks.
#include <map>
#include <set>

#include "catch.h"
#include "read_model.h"
#include "recorded_names.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

EmittedModel emit_tokens(const std::string& text, int64_t vocabulary = 61, int64_t tokens = 24) {
  ModelConfig model;
  const std::string errors = read_model(text, model);
  if (!errors.empty()) throw Error(ExitCode::usage, errors);
  const auto loss = make_kind(loss_table(), "cross_entropy");
  std::vector<InputSpec> inputs{{"input", {Shape{tokens}, DType::i32}}};
  if (text.find("mask: true") != std::string::npos || text.find("lengths") != std::string::npos) {
    const bool lengths = text.find("lengths") != std::string::npos;
    inputs.push_back(
        {lengths ? "lengths" : "attention_mask", {lengths ? Shape{} : Shape{tokens}, DType::i32}});
  }
  return emit_model(
      {.model = model, .loss = *loss, .inputs = inputs, .vocabulary = vocabulary, .samples = 2});
}

std::string refusal_of_tokens(const std::string& text, int64_t vocabulary = 61,
                              int64_t tokens = 24) {
  try {
    emit_tokens(text, vocabulary, tokens);
  } catch (const Error& error) {
    return error.code() == ExitCode::usage ? error.what() : "another code";
  }
  return "";
}

TEST_CASE(
    "tensors of language models are called as in Hugging Face's files and have their shapes") {
  const std::string small =
      "num_layers: 2, hidden_size: 32, num_heads: 4, num_kv_heads: 2, intermediate_size: 48";
  const std::map<std::string, std::string> models{
      {"gpt2", "{type: gpt2, num_layers: 2, hidden_size: 32, num_heads: 4, max_positions: 32}"},
      {"llama", "{type: llama, " + small + "}"},
      {"qwen2", "{type: qwen2_5_0_5b, " + small + "}"},
      {"qwen3", "{type: qwen3_0_6b, head_dim: 16, tie_word_embeddings: false, " + small + "}"},
      {"bert",
       "{type: bert, num_layers: 2, hidden_size: 32, num_heads: 4, intermediate_size: 48, "
       "max_positions: 32}"},
      {"albert",
       "{type: albert, num_layers: 3, embedding_size: 16, hidden_size: 32, num_heads: 4, "
       "intermediate_size: 48, max_positions: 32}"},
      {"mixtral", "{type: mixtral, num_experts: 4, " + small + "}"},
      {"qwen3_moe",
       "{type: qwen3_moe, num_layers: 2, hidden_size: 32, num_heads: 4, num_kv_heads: 2, head_dim: "
       "16, num_experts: 8, experts_per_token: 3, intermediate_size: 24}"}};
  const auto wanted = recorded_names("language");
  REQUIRE(wanted.size() == models.size());
  for (const auto& [name, tensors] : wanted) {
    INFO(name);
    std::set<std::string> found;
    for (const ParameterInfo& p : emit_tokens(models.at(name)).parameters) {
      found.insert(fmt::format("{} {}", p.name, to_string(p.file.shape)));
    }
    CHECK(found == tensors);
  }
}

TEST_CASE("published sizes have the published numbers of parameters") {
  const auto count = [](const std::string& type, int64_t vocabulary) {
    int64_t sum = 0;
    const EmittedModel model = emit_tokens(fmt::format("{{type: {}}}", type), vocabulary);
    for (const ParameterInfo& p : model.parameters) sum += p.spec.shape.elements();
    return sum;
  };
  CHECK(count("gpt2", 50257) == 124439808);
  CHECK(count("gpt2_medium", 50257) == 354823168);
  CHECK(count("gpt2_large", 50257) == 774030080);
  CHECK(count("gpt2_xl", 50257) == 1557611200);
  CHECK(count("llama", 128256) == 8030261248);
  CHECK(count("llama3_2_1b", 128256) == 1235814400);
  CHECK(count("llama3_2_3b", 128256) == 3212749824);
  CHECK(count("qwen2_5_0_5b", 151936) == 494032768);
  CHECK(count("qwen2_5_1_5b", 151936) == 1543714304);
  CHECK(count("qwen3_0_6b", 151936) == 596049920);
  CHECK(count("mixtral", 32000) == 46702792704);
  CHECK(count("qwen3_moe", 151936) == 30532122624);
  CHECK(count("bert", 30522) == 109514298);
  CHECK(count("bert_large", 30522) == 335174458);
  CHECK(count("albert", 30000) == 11221680);
}

TEST_CASE("GPT-2 starts as GPT-2 does") {
  const EmittedModel model = emit_tokens("{type: gpt2_medium}");
  for (const ParameterInfo& p : model.parameters) {
    INFO(p.name);
    if (p.name.ends_with("bias")) {
      CHECK((p.initializer.kind == Initializer::constant && p.initializer.value == 0));
    } else if (p.name.find("ln_") != std::string::npos) {
      CHECK((p.initializer.kind == Initializer::constant && p.initializer.value == 1));
    } else {
      const double std = p.name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(48.0) : 0.02;
      CHECK(p.initializer.kind == Initializer::normal);
      CHECK(p.initializer.value == Approx(std));
    }
  }
}

TEST_CASE("the size of the vocabulary is the model's, or else the data's") {
  const auto rows = [](const std::string& text, int64_t vocabulary) {
    const EmittedModel model = emit_tokens(text, vocabulary);
    CHECK(model.asked_vocabulary);
    CHECK(model.graph.value(model.output).spec.shape[-1] == model.parameters[0].spec.shape[0]);
    return model.parameters[0].spec.shape[0];
  };
  const std::string layers = "layers: [{embedding: {embedding_dim: 4}, name: e}, {lm_head: {}}]";
  CHECK(rows("{" + layers + "}", 7) == 7);
  CHECK(rows("{vocab_size: 9, " + layers + "}", 7) == 9);
  CHECK_THAT(refusal_of_tokens("{" + layers + "}", 0), Contains("set model.vocab_size"));
  CHECK_THAT(refusal_of_tokens("{vocab_size: 9, layers: [{embedding: {num_embeddings: 9, "
                               "embedding_dim: 4}}, {linear: 9}]}"),
             Contains("no layer uses this size"));
}

TEST_CASE("a head shares the weight of the embedding and keeps its bias") {
  const EmittedModel model = emit_tokens(
      "layers: [{embedding: {embedding_dim: 4}, name: e}, {lm_head: {bias: true}, name: h, share: "
      "e}]");
  CHECK(parameters_of(model) == "e.weight f32[61, 4]\nh.bias f32[61]\n");
  CHECK_THAT(refusal_of_tokens("layers: [{embedding: {embedding_dim: 4}, name: e}, {linear: 4, "
                               "name: l}, {lm_head: {}, share: l}]"),
             Contains("l.weight is [4, 4], this layer needs [61, 4]"));
}

TEST_CASE("a weight that files keep transposed") {
  const EmittedModel model = emit_text(
      "layers: [{linear: {out_features: 3, weight_layout: in_out}, weight_init: {he_normal: {}}, "
      "bias_init: zeros}, {linear: {out_features: 2, bias: false}, bias_init: zeros}]",
      {5});
  CHECK(parameters_of(model) ==
        "layers.0.weight f32[3, 5] file [5, 3]\nlayers.0.bias f32[3]\nlayers.1.weight f32[2, 3]\n");
  const ParameterInfo& weight = model.parameters[0];
  CHECK(weight.initializer.value == Approx(std::sqrt(2.0 / 5)));  // five inputs, not three
  const std::vector<float> file{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  std::vector<float> memory(15);
  file_to_memory(weight, file, memory);
  CHECK(memory[1] == 4);  // of output 0 from input 1
  CHECK_THAT(refusal("layers: [{linear: {out_features: 3, bias: false}, bias_init: ones}]", {5}),
             Contains("has no bias of its own"));
}

TEST_CASE("attention takes masks, windows and heads in either form") {
  const std::string embed = "{embedding: {embedding_dim: 8}, name: x}, ";
  const auto graph = [&](const std::string& rest) {
    return print_graph(emit_tokens("layers: [" + embed + rest + ", {lm_head: {}}]").graph);
  };
  CHECK_THAT(graph("{linear: {out_features: 24}}, {attention: {num_heads: 2, causal: true, "
                   "sliding_window: 5, alibi: true}}"),
             Contains("alibi=true, causal=true, heads=2, kv_heads=2, window=5"));
  CHECK_THAT(graph("{attention: {num_heads: 2}, inputs: [x, x, x, lengths]}"),
             Contains(", input.lengths) {causal=false, masked=true}"));
  CHECK_THAT(graph("{reshape: [-1, 2, 4]}, {rotary_positions: {theta: 100, dim: 2}, name: q}, "
                   "{attention: {num_heads: 2, scale: 0.5}, inputs: [q, q, x]}"),
             Contains("rotary(") && Contains("{dim=2, theta=100}") && Contains("scale=0.5"));
  CHECK_THAT(graph("sinusoidal_positions"), Contains("sinusoidal_positions("));
  CHECK_THAT(graph("{token_type_embedding: 2, inputs: [x, input]}"), Contains("embedding(input."));
  CHECK_THAT(
      refusal_of_tokens("layers: [" + embed + "{attention: {num_heads: 3}, inputs: [x, x]}]"),
      Contains("takes queries, keys and values"));
  CHECK_THAT(refusal_of_tokens("{type: gpt2, max_positions: 16}"),
             Contains("sequences of 24 tokens are longer than max_positions 16"));
  CHECK_THAT(refusal_of_tokens("{type: llama, num_layers: 1, max_positions: 16}"),
             Contains("sequences of 24 tokens are longer than max_positions 16"));
}

}  // namespace
}  // namespace dltrain

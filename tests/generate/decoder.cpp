// Texts that are continued token by token have the logits of the whole text, for every family of
// models; texts do not depend on each other, to the bit; models that cannot generate text are
// refused by name.
#include "generate/decoder.h"

#include <cmath>

#include "catch.h"
#include "cpu/engine.h"
#include "generate/opened.h"
#include "reference/engine.h"
#include "run_graph.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

const std::vector<std::pair<std::string, std::string>> kModels{
    {"gpt2", "{type: gpt2, num_layers: 2, hidden_size: 24, num_heads: 3, max_positions: 48}"},
    {"llama",
     "{type: llama, num_layers: 2, hidden_size: 24, num_heads: 4, num_kv_heads: 2, "
     "intermediate_size: 32}"},
    {"llama with scaled angles and a window",
     "{type: llama, num_layers: 2, hidden_size: 24, num_heads: 4, num_kv_heads: 1, "
     "intermediate_size: 32, sliding_window: 5, rope_scaling: {type: linear, factor: 2.0}}"},
    {"qwen2",
     "{type: qwen2_5_0_5b, num_layers: 2, hidden_size: 24, num_heads: 4, num_kv_heads: 2, "
     "intermediate_size: 32}"},
    {"qwen3",
     "{type: qwen3_0_6b, num_layers: 2, hidden_size: 24, num_heads: 4, num_kv_heads: 2, head_dim: "
     "10, intermediate_size: 32}"},
    {"alibi",
     "{layers: [{embedding: {embedding_dim: 24}}, {residual: [{linear: 72}, {attention: "
     "{num_heads: 3, causal: true, alibi: true}}]}, {layer_norm: {}}, {lm_head: {}}]}"},
    {"places as many as tokens",
     "{layers: [{embedding: {embedding_dim: 16}}, position_embedding, {residual: "
     "[{multi_head_attention: {num_heads: 2, num_kv_heads: 1, causal: true}}]}, {lm_head: {bias: "
     "true}}]}"},
    {"sinusoids",
     "{layers: [{embedding: {embedding_dim: 16}}, sinusoidal_positions, {residual: "
     "[{multi_head_attention: {num_heads: 2, causal: true}}]}, {lm_head: {}}]}"},
    {"lstm",
     "{layers: [{embedding: {embedding_dim: 12}}, {lstm: {hidden_size: 16, num_layers: 2}}, "
     "{lm_head: {}}]}"},
    {"gru", "{layers: [{embedding: {embedding_dim: 12}}, {gru: 16}, {lm_head: {}}]}"},
    {"rnn",
     "{layers: [{embedding: {embedding_dim: 12}}, {rnn: {hidden_size: 16, bias: false}}, "
     "{lm_head: {}}]}"},
    {"softmax in the end",
     "{layers: [{embedding: {embedding_dim: 12}}, {gru: 16}, {lm_head: {}}, log_softmax]}"},
    {"experts",
     "{layers: [{embedding: {embedding_dim: 24}}, {residual: [{multi_head_attention: {num_heads: "
     "3, causal: true}}]}, {residual: [{moe: {num_experts: 6, experts_per_token: 2, "
     "intermediate_size: 20, shared_experts: 1}}]}, {lm_head: {}}]}"},
};

// Logits of every token of a text that the model sees as a whole, f64.
std::vector<double> whole_decoder(const ModelConfig& model, const std::vector<int32_t>& tokens) {
  const auto loss = make_kind(loss_table(), "cross_entropy");
  EmittedModel emitted =
      emit_model({.model = model,
                  .loss = *loss,
                  .inputs = {{"input", {Shape{static_cast<int64_t>(tokens.size())}, DType::i32}}},
                  .vocabulary = kIds,
                  .samples = 1,
                  .training = false,
                  .compute = DType::f64});
  return output_of(std::move(emitted), {{"input.input", {tokens.begin(), tokens.end()}},
                                        {"targets", std::vector<double>(tokens.size(), 0)}});
}

TEST_CASE("texts that are continued have the logits of the whole text") {
  for (const auto& [name, description] : kModels) {
    INFO(name);
    const ModelConfig model = model_of(description);
    const std::vector<int32_t> tokens = text(1);
    const std::vector<double> expected = whole_decoder(model, tokens);
    REQUIRE(expected.size() == tokens.size() * kIds);
    Opened exact(model, reference_engine(), DType::f64, 1);
    Opened fast(model, cpu_engine(), DType::f32, 1);
    for (size_t prompt : {1, 9, 16, 21}) {
      INFO(prompt << " tokens of prompt");
      CHECK(difference(exact.decoder, tokens, prompt, expected) < 1e-6);  // logits are given in f32
      CHECK(difference(fast.decoder, tokens, prompt, expected) < 1e-5);
    }
  }
}

TEST_CASE("in 16 bits texts that are continued stay near those in f32") {
  const ModelConfig model = model_of(kModels[1].second);
  const std::vector<int32_t> tokens = text(2);
  const std::vector<double> expected = whole_decoder(model, tokens);
  double scale = 0;
  for (double x : expected) scale = std::max(scale, std::abs(x));
  for (DType dtype : {DType::bf16, DType::f16}) {
    Opened low(model, cpu_engine(), DType::f32, 1, dtype);
    const double worst = difference(low.decoder, tokens, 7, expected) / scale;
    CHECK(worst > 1e-6);
    CHECK(worst < 0.05);
  }
}

TEST_CASE("a text has the same bits alone and beside others, in any slot") {
  for (const auto& [name, description] : kModels) {
    INFO(name);
    const ModelConfig model = model_of(description);
    std::vector<std::vector<int32_t>> texts{text(1, 30), text(2, 12), text(3, 5)};
    Opened together(model, cpu_engine(), DType::f32, 4);
    std::vector<std::vector<float>> found(3);
    for (size_t t = 0; t < 3; ++t) {
      // Slot 2 − t; slot 3 stays empty.
      const auto logits = together.decoder.prefill(static_cast<int64_t>(2 - t), texts[t], 0);
      found[t].assign(logits.begin(), logits.end());
    }
    for (int32_t i = 0; i < 4; ++i) {
      std::vector<Decoder::Next> next(4);
      for (size_t t = 0; t < 3; ++t) {
        next[2 - t] = {i + 1, static_cast<int32_t>(texts[t].size()) + i};
      }
      const auto logits = together.decoder.step(next);
      for (size_t t = 0; t < 3; ++t) {
        const auto row = logits.subspan((2 - t) * kIds, kIds);
        found[t].insert(found[t].end(), row.begin(), row.end());
      }
    }
    Opened alone(model, cpu_engine(), DType::f32, 1);
    for (size_t t = 0; t < 3; ++t) {
      std::vector<float> expected;
      const auto take = [&](std::span<const float> row) {
        expected.insert(expected.end(), row.begin(), row.end());
      };
      take(alone.decoder.prefill(0, texts[t], 0));
      for (int32_t i = 0; i < 4; ++i) {
        const Decoder::Next next{i + 1, static_cast<int32_t>(texts[t].size()) + i};
        take(alone.decoder.step({&next, 1}));
      }
      CHECK(found[t] == expected);
    }
  }
}

std::string refusal_to_continue(const std::string& description) {
  const ModelConfig model = model_of(description);
  try {
    decoder_info({.model = model, .vocabulary = kIds});
  } catch (const Error& error) {
    return error.code() == ExitCode::usage ? error.what() : "another code";
  }
  return "";
}

TEST_CASE("models that cannot generate text are refused by the layer") {
  CHECK_THAT(refusal_to_continue("{type: bert, num_layers: 1, hidden_size: 16, num_heads: 2, "
                                 "intermediate_size: 16}"),
             Contains("it is not causal"));
  const auto layers = [](const std::string& middle) {
    return "{layers: [{embedding: {embedding_dim: 8}}, " + middle + ", {lm_head: {}}]}";
  };
  CHECK_THAT(refusal_to_continue(layers("{multi_head_attention: 2}")),
             Contains("(multi_head_attention)") && Contains("it is not causal"));
  CHECK_THAT(refusal_to_continue(layers("{lstm: {hidden_size: 4, bidirectional: true}}")),
             Contains("reads from the last token too"));
  CHECK_THAT(refusal_to_continue(layers("{gru: {hidden_size: 4, return_sequences: false}}")),
             Contains("one vector a text"));
  CHECK_THAT(refusal_to_continue(layers("class_token")), Contains("puts a token in front"));
  CHECK_THAT(refusal_to_continue(layers("{transpose: [0, 2, 1]}, {linear: 3}")),
             Contains("matmul mixes tokens"));
  CHECK_THAT(refusal_to_continue(layers("flatten")), Contains("mixes tokens"));
  CHECK_THAT(refusal_to_continue(
                 "{layers: [{embedding: {embedding_dim: 8}}, position_embedding, {lm_head: {}}]}"),
             Contains("set max_positions"));
}

TEST_CASE("what a model can do is known before memory is taken") {
  const auto info = [](const std::string& description) {
    const ModelConfig model = model_of(description);
    return decoder_info({.model = model, .vocabulary = kIds});
  };
  CHECK(info(kModels[0].second).max_positions == 48);
  CHECK(info(kModels[0].second).ids == kIds);
  CHECK(info(kModels[1].second).max_positions == 8192);
  CHECK(info(kModels[1].second).keeps_tokens);
  CHECK_FALSE(info(kModels[8].second).keeps_tokens);
  const DecoderInfo narrow = info(
      "{layers: [{embedding: {num_embeddings: 20, embedding_dim: 8}}, {gru: 4}, {linear: 25}]}");
  CHECK_FALSE(narrow.max_positions.has_value());
  CHECK(narrow.ids == 20);
  CHECK(narrow.vocabulary == 25);
}

}  // namespace
}  // namespace dltrain

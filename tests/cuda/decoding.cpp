// Texts that are continued on the CUDA engine's own kernels, without a GPU: the logits of the
// reference engine, alone and beside other texts.
#include <cmath>

#include "catch.h"
#include "cuda_emulation/engine.h"
#include "generate/opened_pair.h"
#include "max_or_inf.h"
#include "reference/engine.h"

using namespace dltrain;

namespace {

const std::vector<std::pair<std::string, std::string>> kModels{
    {"gpt2", "{type: gpt2, num_layers: 2, hidden_size: 24, num_heads: 3, max_positions: 48}"},
    {"llama with a window",
     "{type: llama, num_layers: 2, hidden_size: 24, num_heads: 4, num_kv_heads: 1, "
     "intermediate_size: 32, sliding_window: 5}"},
    {"alibi",
     "{layers: [{embedding: {embedding_dim: 24}}, {residual: [{linear: 72}, {attention: "
     "{num_heads: 3, causal: true, alibi: true}}]}, {layer_norm: {}}, {lm_head: {}}]}"},
    {"sinusoids",
     "{layers: [{embedding: {embedding_dim: 16}}, sinusoidal_positions, {residual: "
     "[{multi_head_attention: {num_heads: 2, causal: true}}]}, {lm_head: {}}]}"},
    {"lstm",
     "{layers: [{embedding: {embedding_dim: 12}}, {lstm: {hidden_size: 16, num_layers: 2}}, "
     "{lm_head: {}}]}"},
    {"gru", "{layers: [{embedding: {embedding_dim: 12}}, {gru: 16}, {lm_head: {}}]}"},
};

// Logits of what follows a prompt, and of what follows each of the tokens after it.
std::vector<float> logits(Decoder& decoder, int64_t slot, int64_t slots,
                          const std::vector<int32_t>& tokens, size_t prompt) {
  std::vector<float> out;
  const auto take = [&](std::span<const float> row) {
    out.insert(out.end(), row.begin(), row.end());
  };
  take(decoder.prefill(slot, std::span(tokens).first(prompt), 0));
  for (size_t i = prompt; i < tokens.size(); ++i) {
    std::vector<Decoder::Next> next(static_cast<size_t>(slots));
    next[static_cast<size_t>(slot)] = {tokens[i], static_cast<int32_t>(i)};
    take(decoder.step(next).subspan(static_cast<size_t>(slot * kIds), kIds));
  }
  return out;
}

double greatest_difference(const std::vector<float>& found, const std::vector<float>& expected) {
  REQUIRE(found.size() == expected.size());
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    worst = max_or_inf(worst, std::abs(found[i] - expected[i]));
  }
  return worst;
}

TEST_CASE("texts are continued on emulated CUDA kernels as by the reference") {
  for (const auto& [name, description] : kModels) {
    INFO(name);
    const ModelConfig model = model_of(description);
    const std::vector<int32_t> tokens = text(1, 27);
    Opened emulated(model, emulated_cuda_engine(), DType::f32, 2);
    Opened exact(model, reference_engine(), DType::f64, 2);
    for (const int64_t slot : {1, 0}) {
      CHECK(greatest_difference(logits(emulated.decoder, slot, 2, tokens, 21),
                                logits(exact.decoder, slot, 2, tokens, 21)) < 1e-5f);
    }
  }
}

TEST_CASE("texts are written to sources on emulated CUDA kernels as by the reference") {
  const std::vector<int32_t> source = text(5, 7), tokens = text(1, 12);
  for (const Kind& kind : kPairs) {
    INFO(kind.name);
    OpenedPair emulated(kind, emulated_cuda_engine(), DType::f32, 2);
    OpenedPair exact(kind, reference_engine(), DType::f64, 2);
    for (OpenedPair* pair : {&emulated, &exact}) {
      pair->decoder.read_source(0, text(6, kSource), 0);  // of another text, which is not asked for
      pair->decoder.read_source(1, source, 0);
    }
    CHECK(greatest_difference(logits(emulated.decoder, 1, 2, tokens, 5),
                              logits(exact.decoder, 1, 2, tokens, 5)) < 1e-5f);
    // It is the source that is read: the other one leads to other texts.
    CHECK(greatest_difference(logits(emulated.decoder, 0, 2, tokens, 5),
                              logits(exact.decoder, 1, 2, tokens, 5)) > 1e-3f);
  }
}

TEST_CASE("a text has the same bits alone and beside others on emulated CUDA kernels") {
  const ModelConfig model = model_of(kModels[1].second);
  const std::vector<int32_t> tokens = text(4, 12);
  Opened alone(model, emulated_cuda_engine(), DType::f32, 2);
  Opened together(model, emulated_cuda_engine(), DType::f32, 2);
  together.decoder.prefill(0, text(5, 19), 0);
  CHECK(logits(alone.decoder, 1, 2, tokens, 9) == logits(together.decoder, 1, 2, tokens, 9));
}

}  // namespace

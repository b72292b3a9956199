// Models with an encoder and a decoder write texts token by token with the logits of the whole
// text, the source read once; texts do not depend on each other's sources, to the bit.
#include <cmath>

#include "base/error.h"
#include "catch.h"
#include "cpu/engine.h"
#include "generate/generator.h"
#include "generate/opened_pair.h"
#include "reference/engine.h"
#include "run_graph.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

// Logits of every token of a text whose model sees it and its source as a whole, f64.
std::vector<double> whole_source(const Kind& kind, const std::vector<int32_t>& source,
                                 const std::vector<int32_t>& tokens) {
  const ModelConfig model = model_of(kind.model);
  const auto loss = make_kind(loss_table(), "cross_entropy");
  std::vector<InputSpec> inputs{{"source", {Shape{kSource}, DType::i32}}};
  if (kind.lengths) inputs.push_back({"source_lengths", {Shape{}, DType::i32}});
  inputs.push_back({"decoder_input", {Shape{static_cast<int64_t>(tokens.size())}, DType::i32}});
  EmittedModel emitted = emit_model({.model = model,
                                     .loss = *loss,
                                     .inputs = inputs,
                                     .vocabulary = kIds,
                                     .samples = 1,
                                     .training = false,
                                     .compute = DType::f64});
  std::vector<double> padded(source.begin(), source.end());
  padded.resize(kSource, 0);
  std::map<std::string, std::vector<double>> values{
      {"input.source", padded},
      {"input.decoder_input", {tokens.begin(), tokens.end()}},
      {"targets", std::vector<double>(tokens.size(), 0)}};
  if (kind.lengths) values["input.source_lengths"] = {static_cast<double>(source.size())};
  return output_of(std::move(emitted), values);
}

TEST_CASE("texts of a source have the logits of the whole text") {
  for (const Kind& kind : kPairs) {
    INFO(kind.name);
    const std::vector<int32_t> source = text(5, 7), tokens = text(1, 12);
    const std::vector<double> expected = whole_source(kind, source, tokens);
    REQUIRE(expected.size() == tokens.size() * kIds);
    OpenedPair exact(kind, reference_engine(), DType::f64, 1);
    OpenedPair fast(kind, cpu_engine(), DType::f32, 1);
    for (size_t prompt : {1, 5}) {
      exact.decoder.read_source(0, source, 0);
      fast.decoder.read_source(0, source, 0);
      CHECK(difference(exact.decoder, tokens, prompt, expected) < 1e-6);  // given in f32
      CHECK(difference(fast.decoder, tokens, prompt, expected) < 1e-5);
    }
    // Another source gives other texts.
    exact.decoder.read_source(0, text(6, 4), 0);
    CHECK(difference(exact.decoder, tokens, 1, expected) > 1e-3);
  }
}

TEST_CASE("in 16 bits they stay near those in f32") {
  const std::vector<int32_t> source = text(5, 7), tokens = text(1, 12);
  for (const Kind& kind : kPairs) {
    INFO(kind.name);
    const std::vector<double> expected = whole_source(kind, source, tokens);
    OpenedPair low(kind, cpu_engine(), DType::f32, 1, DType::bf16);
    low.decoder.read_source(0, source, 0);
    double scale = 0;
    for (double x : expected) scale = std::max(scale, std::abs(x));
    const double worst = difference(low.decoder, tokens, 3, expected) / scale;
    CHECK(worst > 1e-6);
    CHECK(worst < 0.05);
  }
}

TEST_CASE("a text has the same bits alone and beside others with other sources") {
  for (const Kind& kind : kPairs) {
    INFO(kind.name);
    const std::vector<TextRequest> requests{{.prompt = {1}, .source = text(1, 9)},
                                            {.prompt = {1}, .source = text(2, 3)},
                                            {.prompt = {1}, .source = text(3, 11)},
                                            {.prompt = {1}, .source = text(4, 5)},
                                            {.prompt = {1}, .copy = 1, .source = text(4, 5)}};
    const GenerateOptions options{.sampling = {.temperature = 1.2}, .max_tokens = 14};
    OpenedPair together(kind, cpu_engine(), DType::f32, 3);
    check_prompts(together.decoder.info(), requests);
    const GenerateReport all = generate(together.decoder, requests, options);
    for (size_t i = 0; i < requests.size(); ++i) {
      OpenedPair alone(kind, cpu_engine(), DType::f32, 1);
      const GenerateReport one = generate(alone.decoder, {&requests[i], 1}, options);
      CHECK(one.texts[0].tokens == all.texts[i].tokens);
      CHECK(one.texts[0].tokens.size() == 14);
    }
    CHECK(all.texts[3].tokens != all.texts[4].tokens);  // copies of one source
    CHECK(all.texts[0].tokens != all.texts[1].tokens);
  }
}

TEST_CASE("sources that do not fit are told, and what is kept of them takes memory once") {
  const ModelConfig model = model_of(kPairs[0].model);
  const DecodeRequest request = request_of(model, true, DType::f32);
  const DecoderInfo info = decoder_info(request);
  CHECK(info.source_length == kSource);
  CHECK(info.source_ids == kIds);
  CHECK(info.ids == kIds);
  const auto problem = [&](const std::vector<int32_t>& source) -> std::string {
    try {
      check_prompts(info, std::vector<TextRequest>{{.prompt = {1}, .source = source}});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(problem(text(1, kSource)).empty());
  CHECK_THAT(problem(text(1, kSource + 1)),
             Contains("prompt 1 has 12 tokens") && Contains("positions for 11"));
  CHECK_THAT(problem({}), Contains("prompt 1 has no tokens"));
  CHECK_THAT(problem({kIds}), Contains("beyond the vocabulary"));
  OpenedPair opened(kPairs[0], cpu_engine(), DType::f32, 2);
  const DecoderOptions options{.engine = &cpu_engine(),
                               .device = opened.device.get(),
                               .request = request,
                               .slots = 2,
                               .capacity = kTokens};
  opened.decoder.read_source(0, text(1, 3), 0);
  opened.decoder.prefill(0, text(1, 3), 0);
  CHECK(opened.decoder.bytes() == decoder_bytes(options, 3));
}

TEST_CASE("a decoder that looks at later tokens is refused, though it has a source") {
  const ModelConfig looks = model_of(
      "{layers: [{embedding: {embedding_dim: 8}, name: encoder}, {embedding: {embedding_dim: 8}, "
      "inputs: decoder_input, name: decoder}, {multi_head_attention: 2}, {attention: "
      "{num_heads: 2}, inputs: [previous, encoder, encoder]}, {lm_head: {}}]}");
  CHECK_THROWS_WITH(decoder_info(request_of(looks, false, DType::f32)),
                    Contains("it is not causal"));
}

}  // namespace
}  // namespace dltrain

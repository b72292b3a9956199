// Small language models with weights that depend on their names alone, opened to generate text.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>

#include "base/philox.h"
#include "computing_in.h"
#include "generate/decoder.h"
#include "max_or_inf.h"
#include "nn/read_model.h"
#include "run_graph.h"

namespace dltrain {

inline constexpr int64_t kIds = 31, kTokens = 40;

inline ModelConfig model_of(const std::string& text) {
  ModelConfig model;
  const std::string mistakes = read_model(text, model);
  if (!mistakes.empty()) throw Error(ExitCode::usage, mistakes);
  return model;
}

inline std::vector<float> weights(const ParameterInfo& info) {
  std::vector<float> out(static_cast<size_t>(info.spec.shape.elements()));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = 0.6f * random_uniform(3, random_stream(info.name), 0, i) - 0.3f;
  }
  return out;
}

inline void write_weights(Decoder& decoder) {
  for (const ParameterInfo& info : decoder.weights()) {
    const std::vector<float> values = weights(info);
    const std::vector<double> wide(values.begin(), values.end());
    decoder.write_state(info.name, info.spec.dtype == DType::f64
                                       ? std::as_bytes(std::span(wide))
                                       : std::as_bytes(std::span(values)));
  }
}

inline std::vector<int32_t> text(uint64_t seed, int64_t tokens = kTokens) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < tokens; ++i) {
    out.push_back(static_cast<int32_t>(random_bits(seed, 0, 0, static_cast<uint64_t>(i)) % kIds));
  }
  return out;
}

// The output of a model with weights() of its parameters, of these inputs;
// computed at once, f64.
inline std::vector<double> output_of(EmittedModel emitted,
                                     const std::map<std::string, std::vector<double>>& inputs) {
  emitted.graph.value(emitted.output).role = Role::output;
  GraphRun run(std::move(emitted.graph));
  for (const ParameterInfo& info : emitted.parameters) {
    const std::vector<float> values = weights(info);
    run.set(info.name, {values.begin(), values.end()});
  }
  for (const auto& [name, values] : inputs) run.set(name, values);
  run.run(Phase::forward);
  return run.get(emitted.output);
}

// The greatest difference of logits, where the first `prompt` tokens are taken together and the
// others one by one.
inline double difference(Decoder& decoder, const std::vector<int32_t>& tokens, size_t prompt,
                         const std::vector<double>& expected) {
  double worst = 0;
  const auto compare = [&](std::span<const float> logits, size_t place) {
    for (size_t i = 0; i < kIds; ++i) {
      worst = max_or_inf(worst, std::abs(double{logits[i]} - expected[place * kIds + i]));
    }
  };
  compare(decoder.prefill(0, std::span(tokens).first(prompt), 0), prompt - 1);
  for (size_t i = prompt; i < tokens.size(); ++i) {
    const Decoder::Next next{tokens[i], static_cast<int32_t>(i)};
    compare(decoder.step({&next, 1}), i);
  }
  return worst;
}

struct Opened {
  Opened(const ModelConfig& model, const Engine& engine, DType compute, int64_t slots,
         DType precision = DType::f32)
      : device(engine.open(0)),
        places{1, kTokens, 16},
        decoder({.engine = &engine,
                 .device = device.get(),
                 .request = {.model = model,
                             .vocabulary = kIds,
                             .compute = compute,
                             .precision = computing_in(precision),
                             .trained =
                                 [this](const std::string& name) {
                                   return name.ends_with("pos_embedding") ? &places : nullptr;
                                 }},
                 .slots = slots,
                 .capacity = kTokens}) {
    write_weights(decoder);
  }
  std::unique_ptr<Device> device;
  Shape places;
  Decoder decoder;
};

}  // namespace dltrain

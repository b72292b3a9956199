// model.pad_vocab_to: the products of the head have more columns, and nothing else changes.
#include <algorithm>

#include "config/diagnostics.h"
#include "run/layout_run.h"

using namespace dltrain;

namespace {

constexpr const char* kUntied =
    "[{embedding: {embedding_dim: 8}}, {linear: 8}, {lm_head: {bias: true}}]";
constexpr const char* kTied =
    "[{embedding: {embedding_dim: 8}, name: wte}, {linear: 8}, gelu, {lm_head: {}, share: wte}]";

struct PaddedRun {
  std::vector<double> losses;
  std::vector<std::byte> state;
  int64_t widest = 0;  // columns of a product's result
  Shape output;
};

PaddedRun padded_run(const std::string& layers, DType compute,
                     const std::vector<std::string>& more) {
  std::vector<std::string> overrides{
      "model.layers=" + layers,
      "data={train: {type: synthetic_tokens, vocab_size: 37, length: 9, samples: 32}, eval: {type: "
      "synthetic_tokens, vocab_size: 37, length: 9, samples: 8}}",
      "optimizer={type: adamw, learning_rate: 0.01}",
      "training={global_batch_size: 8, max_steps: 5, max_grad_norm: 1.0}",
      "logging.logging_steps=1",
      "device=cpu"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  auto experiment = load_config<Experiment>({.files = {}, .overrides = overrides});
  Session session = open_session(
      experiment,
      {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}, .compute = compute});
  start_session(session);
  PaddedRun out;
  TrainEvents events;
  events.on_step = [&](const StepRecord& record) { out.losses.push_back(record.loss); };
  events.on_evaluation = [&](const EvaluationRecord& record) {
    out.losses.push_back(record.metrics.front().second);
  };
  train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  out.state = session.executor->read_checkpointed();
  const Graph& graph = session.executor->training().graph;
  for (const Node& node : graph.nodes) {
    if (node.op->name != "matmul") continue;
    out.widest = std::max(out.widest, graph.value(node.outputs[0]).spec.shape[-1]);
  }
  out.output = session.executor->training().output_spec.shape;
  return out;
}

}  // namespace

TEST_CASE("padding of the vocabulary changes no bit of losses and state on the reference engine") {
  for (const char* layers : {kUntied, kTied}) {
    for (const char* batches : {"seed=0", "training.micro_batch_size=2"}) {
      const PaddedRun plain = padded_run(layers, DType::f64, {batches});
      REQUIRE(plain.losses.size() >= 6);
      for (const int64_t multiple : {8, 128}) {
        INFO(layers << ", " << batches << ", " << multiple);
        const PaddedRun padded = padded_run(
            layers, DType::f64, {batches, fmt::format("model.pad_vocab_to={}", multiple)});
        CHECK(padded.losses == plain.losses);
        CHECK(padded.state == plain.state);  // of the true size
        CHECK(padded.widest == (37 + multiple - 1) / multiple * multiple);
        CHECK(plain.widest == 37);
        CHECK(padded.output == plain.output);
      }
    }
  }
}

TEST_CASE("padding of classes changes no bit either") {
  for (const char* bias : {"true", "false"}) {
    INFO("bias: " << bias);
    const Network network{
        "classes",
        {fmt::format(
             "model.layers=[flatten, {{linear: 24}}, gelu, {{linear: {{out_features: 5, bias: "
             "{}}}}}]",
             bias),
         "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 96}"}};
    const LayoutRun plain = layout_run(network, 1, {}, 0, DType::f64);
    const LayoutRun padded = layout_run(network, 1, {"model.pad_vocab_to=8"}, 0, DType::f64);
    CHECK(padded.losses == plain.losses);
    CHECK(padded.state == plain.state);
  }
}

TEST_CASE("padding of the vocabulary trains alike in every precision and under recomputation") {
  for (const char* precision :
       {"precision.compute=f32", "precision.matmul=tf32", "precision.compute=bf16",
        "precision={compute: bf16, parameters: bf16}", "precision.compute=fp16"}) {
    for (const char* memory : {"memory.recompute=none", "memory.recompute=full"}) {
      INFO(precision << ", " << memory);
      const PaddedRun plain = padded_run(kTied, DType::f32, {precision}),
                      padded = padded_run(kTied, DType::f32,
                                          {precision, memory, "model.pad_vocab_to=64"});
      REQUIRE(padded.losses.size() == plain.losses.size());
      for (size_t i = 0; i < plain.losses.size(); ++i) {
        CHECK(padded.losses[i] == Approx(plain.losses[i]).epsilon(2e-3));
      }
      CHECK(padded.state.size() == plain.state.size());
      CHECK(padded.widest == 64);
    }
  }
}

TEST_CASE("a vocabulary that fits is not padded, and what cannot be padded is refused at the key") {
  CHECK(padded_run(kTied, DType::f32, {"model.pad_vocab_to=37"}).state ==
        padded_run(kTied, DType::f32, {}).state);
  const auto refused = [](const std::string& layers, const std::vector<std::string>& more) {
    try {
      padded_run(layers, DType::f32, more);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  const std::string scaled =
      refused("[{embedding: {embedding_dim: 8}}, {lm_head: {}}, tanh]", {"model.pad_vocab_to=64"});
  INFO(scaled);
  CHECK(scaled.find("pads the last matrix product of a model whose logits only cross_entropy") !=
        std::string::npos);
}

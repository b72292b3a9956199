// The training graphs of target models in bf16 as GPUs have them: their calls and their bytes.
#include <map>

#include <fmt/format.h>

#include "catch.h"
#include "config/load.h"
#include "cuda_emulation/engine.h"
#include "reference/engine.h"
#include "run/session.h"

namespace dltrain {
namespace {

struct Step {
  std::map<std::string, int> calls;
  int chunks = 0;      // of the loss, which depend on the memory of this machine
  double gibytes = 0;  // of memory traffic
};

// Planned, not run.
Step step_of(const std::vector<std::string>& overrides) {
  std::vector<std::string> all{"loss={type: cross_entropy}", "precision.compute=bf16", "device=cpu",
                               "optimizer={type: adamw, learning_rate: 0.1}"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  auto experiment = load_config<Experiment>({.files = {}, .overrides = all});
  const Session session = open_session(
      experiment, {.engines = {.cpu = &emulated_cuda_engine(), .reference = &reference_engine()}});
  Step out;
  for (const Node& node : session.executor->training_program().graph().nodes) {
    ++out.calls[std::string(node.op->name)];
  }
  out.chunks = out.calls["softmax_cross_entropy_gradient"];
  out.gibytes = session.executor->report().bytes_per_step / (1 << 30);
  std::string text;
  for (const auto& [op, count] : out.calls) text += fmt::format("{} {}, ", op, count);
  UNSCOPED_INFO(text << out.gibytes << " GiB");
  return out;
}

std::vector<std::string> language_model(const std::string& model, const std::string& data,
                                        int batch) {
  return {"model=" + model,
          fmt::format("data.train={{type: synthetic_tokens, {}, samples: 64}}", data),
          fmt::format("training={{global_batch_size: {}, max_steps: 1}}", batch)};
}

TEST_CASE("the step of GPT-2 124M has no casts, one addition of its own and few copies") {
  Step step = step_of(
      language_model("{type: gpt2, vocab_size: 50257}", "vocab_size: 50257, length: 1024", 64));
  CHECK(step.calls["cast"] == 0);
  CHECK(step.calls["fused_elementwise"] == 0);
  CHECK(step.calls["add"] == 1);                               // of positions
  CHECK(step.calls["identity"] == 2 * (step.chunks - 1) + 1);  // sums of the loss, positions
  CHECK(step.calls["slice"] == 2 * step.chunks + 1);           // of the loss
  CHECK(step.calls["layer_norm_backward"] == 25);
  CHECK(step.gibytes - 0.29 * step.chunks < 234);  // each reads and writes the head once more
}

TEST_CASE("with a residual stream in bf16 GPT-2 124M moves fewer bytes") {
  auto model =
      language_model("{type: gpt2, vocab_size: 50257}", "vocab_size: 50257, length: 1024", 64);
  const Step wide = step_of(model);
  model.push_back("precision.residual=bf16");
  Step step = step_of(model);
  CHECK(step.calls["cast"] == 4);  // around embedding and positions
  CHECK(step.gibytes < wide.gibytes - 13);
}

TEST_CASE("the step of BERT-large has no casts and few copies") {
  Step step = step_of(language_model("{type: bert_large, vocab_size: 30522, dropout: 0}",
                                     "vocab_size: 30522, length: 512, masked: 0.15", 16));
  CHECK(step.calls["cast"] == 0);
  CHECK(step.calls["fused_elementwise"] == 48);  // gradients of the inputs of each part
  CHECK(step.calls["add"] == 2);                 // of positions and types
  CHECK(step.calls["identity"] == 2 * (step.chunks - 1) + 1);
  CHECK(step.gibytes - 0.24 * step.chunks < 98);
}

TEST_CASE("the step of ResNet-50 has few casts and copies") {
  Step step =
      step_of({"model={type: resnet50}",
               "data.train={type: synthetic, shape: [224, 224, 3], classes: 1000, samples: 256}",
               "training={global_batch_size: 256, max_steps: 1}"});
  CHECK(step.calls["cast"] == 3);
  CHECK(step.calls["add"] == 1);
  CHECK(step.calls["identity"] == 0);
}

}  // namespace
}  // namespace dltrain

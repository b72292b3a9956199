// The whole path on the CUDA engine's own kernels, without a GPU: configuration, graph, passes,
// plan and 20 steps of training over the emulation, against PyTorch's losses.
#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "config/load.h"
#include "cpu/engine.h"
#include "cuda_emulation/engine.h"
#include "recurrent_model.h"
#include "reference/engine.h"
#include "run/session.h"
#include "run/trainer.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

struct Trajectory {
  std::vector<double> loss, grad_norm;
};

Trajectory train_on_training(const Engine& engine, const std::filesystem::path& config,
                             const std::vector<std::string>& extra) {
  std::vector<std::string> overrides{"device=cpu"};  // the place where the session takes `engine`
  overrides.insert(overrides.end(), extra.begin(), extra.end());
  auto experiment = load_config<Experiment>({.files = {config}, .overrides = overrides});
  Session session =
      open_session(experiment, {.engines = {.cpu = &engine, .reference = &reference_engine()}});
  start_session(session);
  Trajectory out;
  TrainEvents events;
  events.on_step = [&](const StepRecord& record) {
    out.loss.push_back(record.loss);
    out.grad_norm.push_back(record.grad_norm);
  };
  train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  return out;
}

const std::string kGolden = std::string(DLTRAIN_SOURCE_DIR) + "/tests/golden/";

nlohmann::json read_golden(const std::string& folder) {
  std::ifstream file(kGolden + folder + "/losses.json");
  return nlohmann::json::parse(file);
}

void check(const std::string& name, const Trajectory& found, const nlohmann::json& golden,
           double tolerance = 1e-5) {
  REQUIRE(found.loss.size() == golden["loss"].size());
  for (size_t i = 0; i < found.loss.size(); ++i) {
    INFO(name << ", step " << i + 1);
    CHECK(found.loss[i] == Approx(golden["loss"][i].get<double>()).epsilon(tolerance));
    if (!golden.contains("grad_norm")) continue;
    CHECK(found.grad_norm[i] ==
          Approx(golden["grad_norm"][i].get<double>()).epsilon(10 * tolerance));
  }
}

// `weights`: the file of initial values beside the configuration.
void compare(const std::string& folder, const std::string& name,
             const std::vector<std::string>& extra = {},
             const std::string& weights = "weights.safetensors", double tolerance = 1e-5) {
  const std::string place = kGolden + folder + "/";
  const auto json = read_golden(folder);
  const auto& golden = (json.contains("cases") ? json["cases"] : json)[name]["f64"];
  std::vector<std::string> overrides{"model.init_from=" + place + weights,
                                     "data.train.path=" + place + "batches.safetensors"};
  overrides.insert(overrides.end(), extra.begin(), extra.end());
  check(name, train_on_training(emulated_cuda_engine(), place + name + ".yaml", overrides), golden,
        tolerance);
}

// A recurrent language model of tests/golden/recurrent: cell, or cell_carried.
void compare_recurrent(const std::string& name, const std::vector<std::string>& extra = {},
                       double tolerance = 1e-5) {
  const TemporaryFolder folder;
  const auto file = write_recurrent_model(folder, name);
  check(name, train_on_training(emulated_cuda_engine(), file, extra),
        recurrent_golden()["cases"][name]["f64"], tolerance);
}

// An optimizer of tests/golden/optimizers, in place of that of the MLP.
void compare_optimizer(const std::string& name) {
  constexpr const char* kConfig = R"(
name: optimizer
model:
  init_from: {place}/weights.safetensors
  layers: [{{linear: 32}}, {{gelu: {{approximate: tanh}}}}, {{linear: 32}},
           {{gelu: {{approximate: tanh}}}}, {{linear: 10}}]
loss: cross_entropy
data: {{type: tensors, path: {place}/batches.safetensors, inputs: x, targets: y,
        train: {{shuffle: false}}}}
optimizer: {optimizer}
training: {{global_batch_size: {batch}, max_steps: {steps}, {training}}}
logging: {{logging_steps: 1}}
)";
  const auto golden = read_golden("optimizers");
  const auto& recorded = golden["cases"][name];
  const TemporaryFolder folder;
  const auto file = folder.write(
      "optimizer.yaml", fmt::format(kConfig, fmt::arg("place", kGolden + "mlp"),
                                    fmt::arg("optimizer", recorded["optimizer"].get<std::string>()),
                                    fmt::arg("training", recorded["training"].get<std::string>()),
                                    fmt::arg("batch", golden["batch"].dump()),
                                    fmt::arg("steps", golden["steps"].dump())));
  check(name, train_on_training(emulated_cuda_engine(), file, {}), recorded["f64"]);
}

}  // namespace

TEST_CASE("an MLP trained on emulated CUDA kernels follows PyTorch's losses") {
  compare("mlp", "gelu-adamw");
  compare("mlp", "relu-sgd");
}

TEST_CASE("accumulation on emulated CUDA kernels follows PyTorch's losses") {
  compare("mlp", "relu-adamw", {"training.micro_batch_size=4"});
}

TEST_CASE("a convnet with batch norm on emulated CUDA kernels follows PyTorch's losses") {
  compare("convnet", "relu-sgd");
}

TEST_CASE("language models on emulated CUDA kernels follow the losses of transformers") {
  for (const std::string name : {"gpt2", "llama", "qwen3", "bert", "mixtral"}) {
    compare("language", name, {}, name + ".safetensors");
  }
}

TEST_CASE("a language model in bf16 on emulated CUDA kernels stays near the losses in f64") {
  compare("language", "llama", {"precision.compute=bf16"}, "llama.safetensors", 0.01);
  compare("language", "gpt2", {"precision={compute: bf16, residual: bf16}"}, "gpt2.safetensors",
          0.01);
}

TEST_CASE("logits with padded rows on emulated CUDA kernels train as those of the CPU engine") {
  const TemporaryFolder folder;  // 1 MiB of logits in bf16, and 5 classes too few for 520
  const auto file = folder.write("padded.yaml", R"(
name: padded
model: {layers: [{embedding: {embedding_dim: 4}}, {lm_head: {}}]}
loss: cross_entropy
precision: {compute: bf16}
data: {train: {type: synthetic_tokens, vocab_size: 515, length: 1024, samples: 2}}
optimizer: {type: sgd, learning_rate: 8}
training: {global_batch_size: 1, max_steps: 3}
logging: {logging_steps: 1}
)");
  const Trajectory found = train_on_training(emulated_cuda_engine(), file, {}),
                   expected = train_on_training(cpu_engine(), file, {});
  REQUIRE(found.loss.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(found.loss[i] == Approx(expected.loss[i]).epsilon(1e-3));
    CHECK(found.grad_norm[i] == Approx(expected.grad_norm[i]).epsilon(1e-2));
  }
  CHECK(found.loss[2] < found.loss[0]);
}

TEST_CASE("optimizers on emulated CUDA kernels follow their trajectories") {
  for (const std::string name :
       {"lars", "lamb", "adafactor", "adamw-8bit", "lion-8bit", "sgd-8bit", "galore"}) {
    compare_optimizer(name);
  }
}

TEST_CASE("recurrent language models on emulated CUDA kernels follow PyTorch's losses") {
  for (const std::string name : {"lstm", "lstm_carried", "gru_carried", "rnn_carried"}) {
    compare_recurrent(name);
  }
}

TEST_CASE("the state of recurrent models on emulated CUDA kernels is carried by micro-batches") {
  compare_recurrent("lstm_carried", {"training.micro_batch_size=1"});
}

TEST_CASE("an LSTM in bf16 on emulated CUDA kernels stays near the losses in f64") {
  compare_recurrent("lstm", {"precision.compute=bf16"}, 0.1);
}

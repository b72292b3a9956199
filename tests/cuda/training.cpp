// The whole path on the CUDA engine's own kernels, without a GPU: configuration, graph, passes,
// plan and 20 steps of training over the emulation, against PyTorch's losses.
#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "catch.h"
#include "config/load.h"
#include "cuda_emulation/engine.h"
#include "reference/engine.h"
#include "train/session.h"
#include "train/trainer.h"

using namespace dltrain;

namespace {

struct Trajectory {
  std::vector<double> loss, grad_norm;
};

Trajectory train_on(const Engine& engine, const std::string& config,
                    const std::vector<std::string>& extra) {
  std::vector<std::string> overrides{"device=cpu"};  // the place where the session takes `engine`
  overrides.insert(overrides.end(), extra.begin(), extra.end());
  auto experiment = load_config<Experiment>(
      {.files = {std::string(DLTRAIN_SOURCE_DIR) + "/" + config}, .overrides = overrides});
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

// `weights`: the file of initial values beside the configuration.
void compare(const std::string& folder, const std::string& name,
             const std::vector<std::string>& extra = {},
             const std::string& weights = "weights.safetensors", double tolerance = 1e-5) {
  const std::string place = "tests/golden/" + folder + "/";
  std::ifstream file(std::string(DLTRAIN_SOURCE_DIR) + "/" + place + "losses.json");
  const auto json = nlohmann::json::parse(file);
  const auto& golden = (json.contains("cases") ? json["cases"] : json)[name]["f64"];
  std::vector<std::string> overrides{
      "model.init_from=" + std::string(DLTRAIN_SOURCE_DIR) + "/" + place + weights,
      "data.train.path=" + std::string(DLTRAIN_SOURCE_DIR) + "/" + place + "batches.safetensors"};
  overrides.insert(overrides.end(), extra.begin(), extra.end());
  const Trajectory found = train_on(emulated_cuda_engine(), place + name + ".yaml", overrides);
  REQUIRE(found.loss.size() == golden["loss"].size());
  for (size_t i = 0; i < found.loss.size(); ++i) {
    INFO(name << ", step " << i + 1);
    CHECK(found.loss[i] == Approx(golden["loss"][i].get<double>()).epsilon(tolerance));
    CHECK(found.grad_norm[i] ==
          Approx(golden["grad_norm"][i].get<double>()).epsilon(10 * tolerance));
  }
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
  for (const std::string name : {"gpt2", "llama", "qwen3", "bert"}) {
    compare("language", name, {}, name + ".safetensors");
  }
}

TEST_CASE("a language model in bf16 on emulated CUDA kernels stays near the losses in f64") {
  compare("language", "llama", {"precision.compute=bf16"}, "llama.safetensors", 0.01);
}

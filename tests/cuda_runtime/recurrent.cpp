// Recurrent networks through the engine's kernels for cuDNN's RNN interface, over a cuDNN of the
// tests (fake_cudnn_rnn.cpp): op cases against the reference, and training with PyTorch's losses.
#include <cstdlib>

#include <fmt/format.h>

#include "catch.h"
#include "config/load.h"
#include "cuda_emulation/engine.h"
#include "cuda_runtime/engine.h"
#include "cuda_runtime/fake_runtime.h"
#include "cuda_runtime/quiet_step.h"
#include "cuda_runtime/recorded_steps.h"
#include "ops/compare.h"
#include "recurrent_model.h"
#include "reference/engine.h"
#include "run/session.h"
#include "run/trainer.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

struct Trained : RecordedSteps {
  int networks = 0, parts = 0;  // nodes of the training graph: recurrent_network, recurrent
  int64_t kept = 0;             // bytes of all networks
};

Trained train_on_recurrent(const Engine& engine, const std::filesystem::path& file,
                           const std::vector<std::string>& extra = {}) {
  std::vector<std::string> overrides{"device=cpu"};  // the place where the session takes `engine`
  overrides.insert(overrides.end(), extra.begin(), extra.end());
  auto experiment = load_config<Experiment>({.files = {file}, .overrides = overrides});
  Session session =
      open_session(experiment, {.engines = {.cpu = &engine, .reference = &reference_engine()}});
  start_session(session);
  Trained out;
  for (const Node& node : session.executor->training().graph.nodes) {
    out.parts += node.op->name == "recurrent" ? 1 : 0;
    if (node.op->name != "recurrent_network") continue;
    ++out.networks;
    out.kept += node.attributes.integer("kept_bytes");
  }
  train(session, out.events(), {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  return out;
}

void check_losses(const std::vector<double>& found, const std::vector<double>& expected,
                  double tolerance = 1e-5) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(found[i] == Approx(expected[i]).epsilon(tolerance));
  }
}

// A language model of tests/golden/recurrent on cuDNN's networks, over streams that work late.
Trained check_golden(const std::string& name, const std::vector<std::string>& extra = {},
                     double tolerance = 1e-5) {
  INFO(name);
  const TemporaryFolder folder;
  fake_cuda::reset(fake_cuda::Order::late);
  Trained found =
      train_on_recurrent(fake_cudnn_engine(), write_recurrent_model(folder, name), extra);
  CHECK(found.networks > 0);
  CHECK(found.parts == 0);
  CHECK(found.kept > 0);
  check_losses(found.loss,
               recurrent_golden()["cases"][name]["f64"]["loss"].get<std::vector<double>>(),
               tolerance);
  return found;
}

// Layers over tokens of four numbers, made of the samples of tests/golden/mlp.
std::filesystem::path write_layers(const TemporaryFolder& folder, const std::string& recurrent) {
  constexpr const char* kConfig = R"(
name: layers
model: {{layers: [{{reshape: [5, 4]}}, {recurrent}, flatten, {{linear: 10}}]}}
loss: cross_entropy
data: {{train: {{type: tensors, path: {place}/batches.safetensors, inputs: x, targets: y}}}}
optimizer: {{type: adamw, learning_rate: 0.01}}
training: {{global_batch_size: 16, max_steps: 12}}
logging: {{logging_steps: 1}}
)";
  return folder.write("layers.yaml", fmt::format(kConfig, fmt::arg("recurrent", recurrent),
                                                 fmt::arg("place", std::string(DLTRAIN_SOURCE_DIR) +
                                                                       "/tests/golden/mlp")));
}

TEST_CASE("recurrent_network by cuDNN agrees with the reference in every format") {
  fake_cuda::reset(fake_cuda::Order::late);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const auto reports = compare_engine(
        fake_cudnn_engine(), reference_engine(),
        [](const OpCase& c) { return c.op.starts_with("recurrent_network"); }, dtype);
    REQUIRE(reports.size() >= 20);
    for (const CaseReport& report : reports) {
      INFO(dtype_name(dtype) << " " << report.op_case->name);
      CHECK(report.fault == "");
      CHECK(report.variant == "cuDNN");
    }
  }
}

TEST_CASE("recurrent language models on cuDNN's networks follow PyTorch's losses") {
  for (const std::string name : {"lstm", "lstm_carried", "gru_carried", "rnn_carried"}) {
    check_golden(name);
  }
}

TEST_CASE("micro-batches, recomputation and 16 bits on cuDNN's networks") {
  check_golden("lstm_carried", {"training.micro_batch_size=1"});
  const Trained kept = check_golden("lstm");
  const Trained again = check_golden("lstm", {"memory.recompute=full"});
  CHECK(again.loss == kept.loss);
  check_golden("lstm", {"precision.compute=bf16"}, 0.1);
  check_golden("gru_carried", {"precision.compute=fp16"}, 0.1);
}

TEST_CASE("deep networks of both directions train on cuDNN as on the engine's own kernels") {
  for (const std::string kind : {"lstm", "gru", "rnn", "rnn, nonlinearity: relu"}) {
    for (const std::string more : {"bidirectional: true", "dropout: 0.25", "bias: false"}) {
      INFO(kind << ", " << more);
      const TemporaryFolder folder;
      const auto file = write_layers(
          folder, fmt::format("{{type: {}, hidden_size: 6, num_layers: 2, {}}}", kind, more));
      fake_cuda::reset(fake_cuda::Order::late);
      const Trained found = train_on_recurrent(fake_cudnn_engine(), file);
      CHECK(found.networks == (more == "bidirectional: true" ? 4 : 2));
      check_losses(found.loss, train_on_recurrent(emulated_cuda_engine(), file).loss);
    }
  }
}

TEST_CASE("a step with cuDNN's networks allocates nothing and waits for nothing of its own") {
  const Trained found = check_golden("lstm_carried");
  REQUIRE(found.counts.size() >= 8);
  for (size_t step = 4; step + 1 < found.counts.size(); ++step) {
    INFO("step " << step);
    check_quiet(found.counts[step - 1], found.counts[step]);
    CHECK(found.pending[step] >= 3);
  }
}

TEST_CASE("what cuDNN does not take is made of the engine's own kernels") {
  const TemporaryFolder folder;
  const auto file = write_recurrent_model(folder, "gru_carried");
  fake_cuda::reset(fake_cuda::Order::late);
  fake_cuda::set_rnn_time(-1);
  const Trained found = train_on_recurrent(fake_cudnn_engine(), file);
  CHECK(found.networks == 0);
  CHECK(found.parts > 0);
  CHECK(found.loss == train_on_recurrent(emulated_cuda_engine(), file).loss);
}

TEST_CASE("autotune takes the faster of cuDNN's networks and the engine's own kernels") {
  const TemporaryFolder folder, cache;
  ::setenv("DLTRAIN_CACHE_DIR", cache.path().c_str(), 1);
  const auto file = write_recurrent_model(folder, "rnn_carried");
  for (const bool slow : {false, true}) {
    // Kernels of the emulation take no time.
    fake_cuda::reset(fake_cuda::Order::eager);
    fake_cuda::set_rnn_time(slow ? 3 : 0);
    const auto quick = [&](const std::string& size) {
      return train_on_recurrent(fake_cudnn_engine(), file,
                                {"autotune=quick", "training.max_steps=1", size});
    };
    // Another batch each: choices are kept.
    const Trained found = quick(fmt::format("training.micro_batch_size={}", slow ? 1 : 2));
    CHECK((found.networks > 0) == !slow);
    CHECK((found.parts > 0) == slow);
  }
  ::unsetenv("DLTRAIN_CACHE_DIR");
}

TEST_CASE("cuBLAS within cuDNN has buffers of one size, unless the user has chosen") {
  ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
  fake_cuda::reset();
  fake_cuda_engine().open(0);
  CHECK(std::string(std::getenv("CUBLAS_WORKSPACE_CONFIG")) == ":4096:8");
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  fake_cuda_engine().open(0);
  CHECK(std::string(std::getenv("CUBLAS_WORKSPACE_CONFIG")) == ":16:8");
}

}  // namespace

// Training through the CUDA device layer: streams whose work comes as late as it may, captured
// segments, batches that cross on a stream of their own. What it proves is order: that nothing is
// read before it is there, nothing overwritten before it was read, and that the loop neither
// allocates nor waits for the device.
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "catch.h"
#include "checkpoint/checkpoint.h"
#include "config/load.h"
#include "cuda_emulation/engine.h"
#include "cuda_runtime/engine.h"
#include "cuda_runtime/fake_runtime.h"
#include "cuda_runtime/quiet_step.h"
#include "cuda_runtime/recorded_steps.h"
#include "reference/engine.h"
#include "refusal.h"
#include "run/session.h"
#include "run/trainer.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

struct Trajectory : RecordedSteps {
  std::vector<std::string> notices;
  bool joins_gelu = false;
  bool operator==(const Trajectory& other) const {
    return loss == other.loss && grad_norm == other.grad_norm;
  }
};

const std::string kGolden = std::string(DLTRAIN_SOURCE_DIR) + "/tests/golden/";

// Where a run keeps its checkpoints, and whether it goes on from the last of them.
struct RunPlace {
  std::filesystem::path folder = {};
  bool resume = false;
  std::filesystem::path latest() const { return folder / "checkpoints" / "latest"; }
};

Trajectory train_on_training(const Engine& engine, const std::string& folder,
                             const std::string& name, std::vector<std::string> overrides,
                             const RunPlace& run = {}) {
  const std::string place = kGolden + folder + "/";
  const bool language = folder == "language";
  overrides.insert(overrides.begin(),
                   {"device=cpu",  // the place where the session takes `engine`
                    "model.init_from=" + place + (language ? name : "weights") + ".safetensors",
                    "data.train.path=" + place + "batches.safetensors"});
  auto experiment =
      load_config<Experiment>({.files = {place + name + ".yaml"}, .overrides = overrides});
  Session session =
      open_session(experiment, {.engines = {.cpu = &engine, .reference = &reference_engine()}});
  Trajectory out;
  session.executor->device().notices().report_to(
      [&out](const std::string& text) { out.notices.push_back(text); });
  out.joins_gelu = std::ranges::any_of(session.executor->training().graph.nodes,
                                       [](const Node& n) { return n.op->name == "matmul_gelu"; });
  start_session(session);
  if (run.resume) {
    const CheckpointState state = read_checkpoint_state(run.latest());
    load_checkpoint(*session.executor, run.latest(), state);
    session.resume_at(state.position());
  }
  train(session, out.events(),
        {.run_folder = run.folder, .resolved_config = {}, .handle_signals = false});
  return out;
}

// Late and eager streams, and no streams at all.
void check_order(const std::string& folder, const std::string& name,
                 const std::vector<std::string>& overrides = {}) {
  INFO(name);
  const Trajectory expected = train_on_training(emulated_cuda_engine(), folder, name, overrides);
  REQUIRE(expected.loss.size() >= 10);
  for (const auto order : {fake_cuda::Order::late, fake_cuda::Order::eager}) {
    fake_cuda::reset(order);
    const Trajectory found = train_on_training(fake_cuda_engine(), folder, name, overrides);
    CHECK(found == expected);
  }
}

TEST_CASE("training over streams that work late has the losses of training without streams") {
  check_order("mlp", "gelu-adamw");
  check_order("mlp", "relu-adamw", {"training.micro_batch_size=4"});
  check_order("convnet", "relu-sgd");
  check_order("language", "gpt2");
}

TEST_CASE("recomputation changes no bit of a language model in bf16") {
  const auto losses = [](const std::string& mode) {
    fake_cuda::reset(fake_cuda::Order::late);
    return train_on_training(fake_cuda_engine(), "language", "gpt2",
                             {"precision.compute=bf16", "memory.recompute=" + mode});
  };
  const Trajectory expected = losses("none");
  REQUIRE(expected.loss.size() >= 10);
  for (const char* mode : {"selective", "blocks", "full"}) {
    INFO(mode);
    const Trajectory found = losses(mode);
    CHECK(found == expected);
    CHECK(found.joins_gelu == (std::string(mode) != "selective"));
  }
}

TEST_CASE("a step allocates nothing and waits for nothing of its own") {
  for (const std::vector<std::string>& extra :
       {std::vector<std::string>{}, std::vector<std::string>{"training.micro_batch_size=4"}}) {
    const bool accumulates = !extra.empty();
    fake_cuda::reset(fake_cuda::Order::late);
    const Trajectory found = train_on_training(fake_cuda_engine(), "mlp", "relu-adamw", extra);
    REQUIRE(found.counts.size() >= 10);
    // From the fourth on every segment is captured. The last one waits for its own results.
    for (size_t step = 4; step + 1 < found.counts.size(); ++step) {
      INFO("step " << step);
      const fake_cuda::Counts &before = found.counts[step - 1], &after = found.counts[step];
      check_quiet(before, after);
      const int64_t micro_steps = accumulates ? 4 : 1;
      // For the results of the step before, and for each batch before this one.
      CHECK(after.event_waits - before.event_waits <= 1 + micro_steps);
      // The segments of this step are still queued: forward, backward and update at least.
      CHECK(found.pending[step] >= 3);
    }
  }
}

TEST_CASE("a step whose capture fails is told once and goes on uncaptured with the same bits") {
  fake_cuda::reset(fake_cuda::Order::late);
  const Trajectory whole = train_on_training(fake_cuda_engine(), "mlp", "gelu-adamw", {});
  CHECK(whole.notices.empty());
  // In the first, second and third of forward, backward and update; or at a call in a capture.
  for (const std::string function : {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                                     "cudaGraphInstantiate", "captured launch"}) {
    for (const int64_t after : {0, 1, 2}) {
      for (const auto order : {fake_cuda::Order::late, fake_cuda::Order::eager}) {
        INFO(function << ", " << after);
        fake_cuda::reset(order);
        fake_cuda::fail_at(function, after, cudaErrorStreamCaptureUnsupported);
        const Trajectory found = train_on_training(fake_cuda_engine(), "mlp", "gelu-adamw", {});
        CHECK(found == whole);
        REQUIRE(found.notices.size() == 1);
        CHECK_THAT(found.notices[0],
                   Contains("a part of the step cannot be captured") && Contains("an error"));
        CHECK((found.notices[0].find(" in layers.") != std::string::npos) ==
              (function == "captured launch"));
        // This part is launched call by call from then on; the others are captured.
        const auto &before = found.counts[5], &then = found.counts[6];
        CHECK(then.launches > before.launches);
        CHECK(then.graph_launches > before.graph_launches);
      }
    }
  }
}

TEST_CASE("a GPU before Ampere trains in fp16 and f32, and refuses bf16 where it is configured") {
  const fake_cuda::Gpu t4{.name = "Tesla T4", .major = 7, .minor = 5};
  for (const std::string format : {"f32", "fp16"}) {
    const std::vector<std::string> compute{"precision.compute=" + format};
    const Trajectory expected =
        train_on_training(emulated_cuda_engine(), "mlp", "gelu-adamw", compute);
    fake_cuda::reset();
    fake_cuda::set_gpu(t4);
    CHECK(train_on_training(fake_cuda_engine(), "mlp", "gelu-adamw", compute) == expected);
  }
  fake_cuda::reset();
  fake_cuda::set_gpu(t4);
  const std::string text = refusal_of(
      [&] {
        train_on_training(fake_cuda_engine(), "mlp", "gelu-adamw", {"precision.compute=bf16"});
      },
      ExitCode::usage);
  CHECK_THAT(text, Contains("compute") && Contains("bf16 needs an sm_80 GPU (Ampere) or a newer") &&
                       Contains("Tesla T4 is an sm_75; it has fp16 and f32"));
  fake_cuda::reset();
}

std::string failure(const std::string& function, int64_t after, cudaError_t code,
                    const std::vector<std::string>& extra = {}) {
  fake_cuda::reset(fake_cuda::Order::eager);
  fake_cuda::fail_at(function, after, code);
  const std::string text = refusal_of(
      [&] { train_on_training(fake_cuda_engine(), "mlp", "gelu-adamw", extra); }, ExitCode::device);
  fake_cuda::reset();
  return text;
}

TEST_CASE("an error of a launch names the op, the layer and the kernel") {
  const std::string text = failure("launch", 5, cudaErrorIllegalAddress);
  INFO(text);
  CHECK_THAT(text, Contains(" in layers.") || Contains(" in the model") || Contains(" in loss"));
  CHECK_THAT(text, Contains(": CUDA: ") && Contains("CUDA_LAUNCH_BLOCKING=1") &&
                       Contains("last checkpoint is whole"));
}

TEST_CASE("an ECC error in mid-run says what to do") {
  for (const std::string function : {"cudaGraphLaunch", "cudaEventSynchronize"}) {
    const std::string text = failure(function, 7, cudaErrorECCUncorrectable);
    INFO(text);
    CHECK_THAT(text, Contains("uncorrectable ECC error") && Contains("the GPU is faulty") &&
                         Contains("resume on another GPU"));
  }
}

TEST_CASE(
    "after an ECC error in mid-run the last checkpoint is whole, and the run continues from it") {
  const TemporaryFolder folder;
  const std::vector<std::string> saving{"checkpoint.save_steps=2"};
  fake_cuda::reset(fake_cuda::Order::eager);
  const Trajectory whole =
      train_on_training(fake_cuda_engine(), "mlp", "gelu-adamw", saving, {folder / "whole"});
  const RunPlace broken{folder / "broken"};
  fake_cuda::reset(fake_cuda::Order::eager);
  fake_cuda::fail_at("cudaGraphLaunch", 20, cudaErrorECCUncorrectable);
  refusal_of([&] { train_on_training(fake_cuda_engine(), "mlp", "gelu-adamw", saving, broken); },
             ExitCode::device);
  fake_cuda::reset(fake_cuda::Order::eager);  // another GPU
  const auto done = static_cast<size_t>(read_checkpoint_state(broken.latest()).step);
  REQUIRE(done >= 2);
  REQUIRE(done < whole.loss.size());
  const Trajectory rest =
      train_on_training(fake_cuda_engine(), "mlp", "gelu-adamw", saving, {broken.folder, true});
  const auto from = static_cast<std::ptrdiff_t>(done);
  CHECK(rest.loss == std::vector<double>(whole.loss.begin() + from, whole.loss.end()));
}

}  // namespace

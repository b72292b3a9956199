// Profiles of training on the CUDA device, with a CUPTI, an NVML and a listener to NVTX of the
// tests: what is asked of them, and what becomes of their answers.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include <dlfcn.h>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "config/load.h"
#include "cuda/vendor/nvml.h"
#include "cuda/vendor/profiler.h"
#include "cuda_runtime/engine.h"
#include "cuda_runtime/fake_runtime.h"
#include "cuda_runtime/stub/nvml.h"
#include "cuda_runtime/stub/tools.h"
#include "profile/summary.h"
#include "reference/engine.h"
#include "run/reporter.h"
#include "run/session.h"
#include "run/trainer.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

// Loads a library of the tests; the engine's dlopen then finds it under its own name.
template <typename Entry>
auto* stub(const char* path, const char* symbol) {
  void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  INFO((library == nullptr ? dlerror() : ""));
  REQUIRE(library != nullptr);
  const auto entry = reinterpret_cast<Entry>(dlsym(library, symbol));
  REQUIRE(entry != nullptr);
  return entry();
}

FakeNvml& nvml() {
  static FakeNvml* state = stub<FakeNvmlEntry>(DLTRAIN_STUB_NVML, "fake_nvml");
  return *state;
}

FakeTools& tools() {
  ::setenv("NVTX_INJECTION64_PATH", DLTRAIN_STUB_TOOLS, 1);  // read at the first range
  static FakeTools* state = stub<FakeToolsEntry>(DLTRAIN_STUB_TOOLS, "fake_tools");
  return *state;
}

Experiment small_experiment(int steps) {
  return load_config<Experiment>(
      {.files = {},
       .overrides = {"model.layers=[{type: linear, out_features: 24}, {type: gelu}, {type: linear, "
                     "out_features: 4}]",
                     "data.train={type: synthetic, shape: [12], classes: 4, samples: 64}",
                     "optimizer={type: adamw, learning_rate: 0.01}",
                     fmt::format("training={{global_batch_size: 16, max_steps: {}}}", steps),
                     "logging.logging_steps=1", "device=cpu"}});
}

struct Profiled {
  Experiment experiment;
  Session session;
  Recording recording;
  fake_cuda::Counts before, after;  // of the plain steps but the first three

  Profiled() {
    fake_cuda::reset(fake_cuda::Order::eager);
    experiment = small_experiment(9);
    session = open_session(
        experiment, {.engines = {.cpu = &fake_cuda_engine(), .reference = &reference_engine()}});
    start_session(session);
    TrainEvents events;
    events.on_progress = [this](int64_t step) {
      if (step == 4) before = fake_cuda::counts();
      if (step == 7) after = fake_cuda::counts();
    };
    Recorder recorder(*session.executor, 2, session.batch.micro_steps);
    train(session, events,
          {.run_folder = {},
           .resolved_config = {},
           .handle_signals = false,
           .observer = &recorder,
           .observed_from = 7});
    recording = recorder.take();
  }
};

TEST_CASE("CUPTI's kernels are those of the calls, on the host's clock") {
  tools() = {};
  const Profiled run;
  const Recording& r = run.recording;
  CHECK_THAT(r.method, Contains("CUPTI"));
  CHECK_FALSE(r.synchronous);
  REQUIRE(r.calls.size() > 10);
  CHECK(std::ranges::is_sorted(r.device, {}, &DeviceActivity::begin));
  std::vector<int> kernels(r.calls.size());
  int64_t copies = 0;
  for (const DeviceActivity& activity : r.device) {
    if (activity.tag < 0) {
      CHECK(activity.name == "copy host to device");
      CHECK(activity.bytes == 4096);
      CHECK(activity.stream == 13);
      ++copies;
      continue;
    }
    CHECK(activity.name == "fake_rows(float const*, float*)");
    CHECK(activity.end - activity.begin == kFakeKernel);
    const auto tag = static_cast<size_t>(activity.tag);
    ++kernels[tag];
    // Between push and pop, give or take the moment in which the clocks were compared.
    CHECK(activity.begin >= r.calls[tag].begin - 1'000'000);
    CHECK(activity.begin <= r.calls[tag].end + 1'000'000);
  }
  for (int count : kernels) CHECK(count == 1);
  CHECK(copies == 1);
  CHECK(tools().pushed == static_cast<int64_t>(r.calls.size()));
  CHECK(tools().popped == tools().pushed);
  const Profile profile = summarize(r, {.flops_f32 = 1e12, .bytes = 1e12});
  double kernel_seconds = 0;
  for (const ProfileRow& row : profile.ops) kernel_seconds += row.seconds;
  CHECK(std::abs(kernel_seconds * 2 - 1e-9 * kFakeKernel * static_cast<double>(r.calls.size())) <
        1e-9);
}

TEST_CASE("NVTX ranges are named by layer and op, and closed") {
  tools() = {};
  const Profiled run;
  REQUIRE(tools().ranges.size() == run.recording.calls.size());
  CHECK(tools().open_ranges == 0);
  for (size_t i = 0; i < tools().ranges.size(); ++i) {
    const CallEvent& event = run.recording.calls[i];
    CHECK(tools().ranges[i] == call_label(*event.program, event.call));
  }
  CHECK(tools().ranges[0].starts_with("layers.0 "));
}

TEST_CASE("the profiler stops CUPTI when it is done") {
  tools() = {};
  {
    std::string why;
    const auto profiler = make_cupti_profiler(why);
    REQUIRE(profiler != nullptr);
    CHECK(tools().enabled == 6);
  }
  CHECK(tools().enabled == 0);
}

TEST_CASE("where CUPTI refuses, events take the time and the reason is told") {
  tools() = {};
  tools().refuses = true;
  const Profiled run;
  CHECK_THAT(run.recording.method, Contains("events around every call") &&
                                       Contains("CUPTI does not start: another tool is attached"));
  REQUIRE(run.recording.device.size() == run.recording.calls.size());
  for (size_t i = 0; i < run.recording.device.size(); ++i) {
    const DeviceActivity& activity = run.recording.device[i];
    CHECK(activity.kind == DeviceActivity::Kind::call);
    CHECK(activity.end >= activity.begin);
  }
  CHECK(tools().ranges.size() == run.recording.calls.size());
  tools().refuses = false;
}

TEST_CASE("steps before the profile neither make anything nor wait, and run captured") {
  tools() = {};
  const Profiled run;
  CHECK(run.after.made == run.before.made);
  CHECK(run.after.allocations == run.before.allocations);
  CHECK(run.after.synchronisations == run.before.synchronisations);
  CHECK(run.after.launches == run.before.launches);
  CHECK(run.after.graph_launches > run.before.graph_launches);
}

TEST_CASE("the figures of a GPU of known make are its limits") {
  fake_cuda::reset();
  const auto device = fake_cuda_engine().open(0);
  const DeviceProperties& p = device->properties();
  CHECK(p.peak_bytes == 2 * 3.201e9 * 6144 / 8);  // 4.9 TB/s
  CHECK(p.peak_flops_f32 == 256 * 1.98e9 * 132);
  CHECK(p.peak_flops_low == 4096 * 1.98e9 * 132);
  fake_cuda::set_gpu({.name = "RTX 4090", .major = 8, .minor = 9});
  const auto other = fake_cuda_engine().open(0);
  CHECK(other->properties().peak_flops_low == 0);
  CHECK(other->properties().peak_bytes > 0);
  fake_cuda::reset();
}

TEST_CASE("NVML's figures come in our units") {
  nvml() = {};
  std::string why = "something";
  const auto sensor = make_nvml_sensor("0000:3b:00.0", why);
  REQUIRE(sensor != nullptr);
  CHECK(why.empty());
  CHECK(std::string(nvml().pci_bus) == "0000:3b:00.0");
  const DeviceReading r = sensor->read();
  CHECK(r.utilization == 0.97);
  CHECK(r.memory_mib == 41 * 1024);
  CHECK(r.pcie_to_device_mib == 2);
  CHECK(r.pcie_to_host_mib == 0.5);
  CHECK(r.power_watts == 699.5);
  CHECK(r.temperature_celsius == 67);
  CHECK(r.clock_mhz == 1410);
  CHECK(r.throttled.empty());
}

TEST_CASE("lines of the metrics have the GPU's state and the share of its limit") {
  nvml() = {};
  nvml().reasons = 0x4;
  nvml().sensor_code = 3;  // no power and bus traffic
  fake_cuda::reset(fake_cuda::Order::eager);
  Experiment experiment = small_experiment(400);
  Session session = open_session(
      experiment, {.engines = {.cpu = &fake_cuda_engine(), .reference = &reference_engine()}});
  start_session(session);
  const TemporaryFolder folder;
  {
    Reporter reporter(session, folder.path(), std::nullopt, false, 1, "", /*quiet=*/true);
    train(session, reporter.events(),
          {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  }
  std::ifstream file(folder / "metrics.jsonl");
  nlohmann::json last;
  for (std::string line; std::getline(file, line);) last = nlohmann::json::parse(line);
  REQUIRE(last["step"] == 400);
  CHECK(last["gpu_utilization"] == 0.97);
  CHECK(last["gpu_clock_mhz"] == 1410);
  CHECK(last["gpu_throttled"] == "power cap");
  CHECK_FALSE(last.contains("gpu_power_watts"));
  const double flops = 2.0 * 16 * (2 * 12 * 24 + 3 * 24 * 4);
  const double seconds = 1e-3 * last["step_ms"].get<double>();
  const double mfu = flops / (seconds * session.executor->device().properties().peak_flops_f32);
  CHECK(std::abs(last["mfu"].get<double>() / mfu - 1) < 1e-3);
  nvml() = {};
}

TEST_CASE("what a GPU does not give is not there, and reasons for a low clock are named") {
  nvml() = {};
  std::string why;
  const auto sensor = make_nvml_sensor("0000:3b:00.0", why);
  REQUIRE(sensor != nullptr);
  nvml().sensor_code = 3;
  CHECK(std::isnan(sensor->read().power_watts));
  CHECK(std::isnan(sensor->read().pcie_to_device_mib));
  CHECK(sensor->read().clock_mhz == 1410);
  const std::pair<unsigned long long, const char*> cases[] = {
      {0x1, ""},  // idle
      {0x2, ""},  // clocks that somebody has set
      {0x4, "power cap"},
      {0x20, "heat"},
      {0x48, "heat"},
      {0x88, "power brake"},
      {0x8, "hardware slowdown"},
      {0x24, "power cap, heat"}};
  for (const auto& [reasons, name] : cases) {
    CAPTURE(reasons);
    nvml().reasons = reasons;
    CHECK(sensor->read().throttled == name);
  }
  nvml() = {};
}

TEST_CASE("an NVML that does not start or does not know the GPU is one line, and is closed") {
  nvml() = {};
  std::string why;
  nvml().init_code = 9;
  CHECK(make_nvml_sensor("0000:3b:00.0", why) == nullptr);
  CHECK_THAT(why, Contains("NVML does not start"));
  nvml() = {};
  nvml().device_code = 6;
  CHECK(make_nvml_sensor("0000:3b:00.0", why) == nullptr);
  CHECK_THAT(why, Contains("does not know 0000:3b:00.0"));
  CHECK(nvml().open == 0);
  nvml() = {};
  fake_cuda::reset();
  const auto device = fake_cuda_engine().open(0);
  CHECK(device->make_sensor(why) != nullptr);
  CHECK(why.empty());
}

}  // namespace

// parallelism.layout auto: the layout of the ranks that were started.
#include <sstream>

#include "comm/store.h"
#include "cpu/engine.h"
#include "dltrain/commands.h"

namespace dltrain {
namespace {

constexpr const char* kKey = "layout";
// Assumed where the device does not know its rates: a core's FLOP/s and bytes/s, and the bytes/s
// that a process sends to another one of its machine. Layouts are ordered by them, no more.
constexpr double kCoreFlops = 5e10, kCoreBytes = 5e9, kHostLink = 2e9;
constexpr double kAchieved = 0.75;  // of a peak
// GPUs with HBM, which reads so many bytes/s, usually have NVLink within a node.
constexpr double kHbm = 1.2e12, kNvlink = 1e11, kNetwork = 1e10;

// The device of one rank, of which `local` share this machine.
MachineRates rates_of(const DeviceProperties& device, int local) {
  MachineRates out;
  Gpu gpu = find_gpus("h100-80g").front();
  gpu.name = device.name;
  if (device.on_host) {
    const double threads = cpu_threads();
    gpu.memory_bytes = static_cast<int64_t>(device.free_memory) / local;
    gpu.multiprocessors = cpu_threads();
    gpu.bytes_per_second = kCoreBytes * threads;
    gpu.flops_f32 = gpu.flops_fp16 = gpu.flops_bf16 = kCoreFlops * threads;
    out.link = kHostLink;
    out.reserve = 0;
  } else {
    gpu.memory_bytes = static_cast<int64_t>(device.free_memory);
    gpu.multiprocessors = device.processors;
    if (device.peak_bytes > 0) gpu.bytes_per_second = kAchieved * device.peak_bytes;
    if (device.peak_flops_f32 > 0) gpu.flops_f32 = kAchieved * device.peak_flops_f32;
    if (device.peak_flops_low > 0) gpu.flops_fp16 = kAchieved * device.peak_flops_low;
    gpu.flops_bf16 = device.has_bf16 ? gpu.flops_fp16 : 0;
    out.node_link = kNetwork;
    out.link = device.peak_bytes >= kHbm ? kNvlink : kNetwork;
  }
  gpu.flops_fp8 = device.has_fp8 ? 2 * gpu.flops_fp16 : 0;
  gpu.fp8_block = device.fp8_block;
  out.gpu = gpu;
  return out;
}

void refuse_what_it_replaces(const Experiment& experiment) {
  const TrainingConfig& t = experiment.training;
  const auto refuse = [](const ConfigObject& at, const char* key) {
    fail_at(at, key, "parallelism.layout: auto chooses {}; remove one of them", key);
  };
  if (t.gradient_accumulation_steps) refuse(t, "gradient_accumulation_steps");
  if (experiment.memory.recompute != Recompute::none) refuse(experiment.memory, "recompute");
}

FastestLayout choose(const Experiment& experiment, const LoadExperiment& load,
                     const RunRanks& ranks, MachineRates rates) {
  refuse_what_it_replaces(experiment);
  if (!rates.gpu) {
    const SelectedDevice chosen = choose_device(experiment.device, engines(), ranks.local_rank);
    rates = rates_of(chosen.device->properties(), std::min(ranks.on_this_node(), ranks.world));
  }
  const PlanRequest request{.world = ranks.world,
                            .ranks_per_node = ranks.ranks_per_node,
                            .rates = rates,
                            .gpus = {*rates.gpu}};
  return fastest_layout(load, request);
}

}  // namespace

std::string choose_layout(Experiment& experiment, const LoadExperiment& load, const RunRanks& ranks,
                          MachineRates rates) {
  if (experiment.parallelism.layout == LayoutChoice::given || ranks.world == 1) return {};
  FastestLayout found;
  if (ranks.is_leader()) {
    found = choose(experiment, load, ranks, rates);
    if (ranks.store != nullptr) {
      ranks.store->set(kKey, fmt::format("{}", fmt::join(found.overrides, "\n")));
    }
  } else {
    const auto timeout = static_cast<int64_t>(1e3 * experiment.parallelism.timeout);
    std::istringstream lines(ranks.store->get(kKey, std::chrono::milliseconds(timeout)));
    for (std::string line; std::getline(lines, line);) found.overrides.push_back(line);
  }
  experiment = load(found.overrides);
  return found.summary;
}

}  // namespace dltrain

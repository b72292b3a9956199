#include "cuda_runtime/rank_run.h"

#include <cstdlib>
#include <fstream>

#include <dlfcn.h>

#include "comm/ranks.h"
#include "cuda/vendor/device.h"
#include "cuda_runtime/engine.h"
#include "run/device_ranks.h"
#include "temporary_folder.h"
#if defined(DLTRAIN_STUB_NCCL)
#include "cuda/vendor/nccl.h"
#endif

namespace dltrain {
namespace {

constexpr std::chrono::seconds kPatience{300};  // emulated kernels on cores that are shared
constexpr std::chrono::minutes kRankRunTimeout{4};

int gpu_of_rank = 0;

RankTrajectory train_here(const RankRun& run, const test::RankContext& context) {
  const std::unique_ptr<Collectives> host =
      run.ranks > 1 ? context.collectives(kRankRunTimeout) : nullptr;
  fake_cuda::reset(run.order);
  fake_cuda::set_devices(run.gpus);
  fake_cuda::set_gpu({.major = run.major});
  const Engine engine = open_backend(run.backend, run.stub_fails, context.rank % run.gpus);
  Experiment experiment = layout_experiment(run.network, run.overrides);
  const Engines engines{.cpu = &engine, .reference = &reference_engine()};
  const RunRanks ranks{.collectives = host.get(), .rank = context.rank, .world = context.size};
  SelectedDevice chosen = choose_device("cpu", engines, context.rank);
  const CollectiveBackendChoice choice = choose_collective_backend(experiment, ranks, chosen);
  Session session =
      open_session(experiment, {.engines = engines, .ranks = ranks}, std::move(chosen));
  RankTrajectory out;
  join_ranks(session, choice);
  out.note = choice.note;
  out.warning = choice.warning;
  start_session(session);
  train(session, out.events(), {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  session.executor.reset();
  if (host) host->barrier();
  return out;
}

template <typename T>
void write_list(std::ofstream& out, const std::vector<T>& values) {
  const size_t count = values.size();
  out.write(reinterpret_cast<const char*>(&count), sizeof count);
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(count * sizeof(T)));
}
template <typename T>
std::vector<T> read_list(std::ifstream& in) {
  size_t count = 0;
  in.read(reinterpret_cast<char*>(&count), sizeof count);
  std::vector<T> values(in ? count : 0);
  in.read(reinterpret_cast<char*>(values.data()),
          static_cast<std::streamsize>(values.size() * sizeof(T)));
  return values;
}

}  // namespace

Engine open_backend(RankBackend backend, const std::string& stub_fails, int gpu) {
  gpu_of_rank = gpu;
  if (backend == RankBackend::cpu) return cpu_engine();
  // Sessions open device 0 of what they take for the CPU's engine.
  Engine engine = fake_cudnn_engine();
  engine.open = [](int) -> std::unique_ptr<Device> {
    return std::make_unique<CudaDevice>(gpu_of_rank);
  };
#if defined(DLTRAIN_STUB_NCCL)
  if (backend == RankBackend::nccl) {
    setenv("DLTRAIN_STUB_NCCL_FAIL", stub_fails.c_str(), 1);
    // The engine finds the library that is loaded under its name.
    void* stub = dlopen(DLTRAIN_STUB_NCCL, RTLD_NOW | RTLD_GLOBAL);
    if (stub == nullptr) fail(ExitCode::internal, "{}", dlerror());
    engine.collectives = nccl_collectives();
  }
#endif
  return engine;
}

RankTrajectory run_on(const RankRun& run) {
  const TemporaryFolder folder;
  const auto file = folder / "trajectory";
  const auto results = test::run_ranks(
      run.ranks,
      [&](test::RankContext& context) {
        const RankTrajectory found = train_here(run, context);
        if (context.rank != 0) return;
        std::ofstream out(file, std::ios::binary);
        write_list(out, found.loss);
        write_list(out, found.grad_norm);
        write_list(out, std::vector<char>(found.note.begin(), found.note.end()));
        write_list(out, std::vector<char>(found.warning.begin(), found.warning.end()));
        write_list(out, found.counts);
        write_list(out, found.pending);
      },
      kPatience);
  RankTrajectory out;
  for (const test::RankResult& result : results) {
    out.messages.push_back(result.message);
    out.codes.push_back(result.signalled ? -result.code : result.code);
    if (!result.message.empty()) UNSCOPED_INFO(result.message);
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) return out;
  out.loss = read_list<double>(in);
  out.grad_norm = read_list<double>(in);
  const auto note = read_list<char>(in), warning = read_list<char>(in);
  out.note.assign(note.begin(), note.end());
  out.warning.assign(warning.begin(), warning.end());
  out.counts = read_list<fake_cuda::Counts>(in);
  out.pending = read_list<size_t>(in);
  return out;
}

}  // namespace dltrain

#include "run/memory_fit.h"

#include <algorithm>

#include <sys/resource.h>

#include "base/cpus.h"
#include "checkpoint/snapshot.h"
#include "comm/collective_algorithms.h"
#include "comm/unconnected_ranks.h"
#include "ops/galore.h"
#include "run/samples.h"

namespace dltrain {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
// Pages of the program and its libraries, of which MemoryLimit::used counts none, and buffers of
// files: up to 37 MiB were measured. Each thread has its stack and its heap.
constexpr uint64_t kHostAllowance = 48 * kMiB, kOfThread = kMiB;
// The memory that libraries take of a GPU after it is opened: an estimate.
constexpr uint64_t kGpuLibraries = 512 * kMiB;
constexpr uint64_t kHeap = 64 * kMiB;  // addresses that glibc reserves for a thread's heap
constexpr int kServices = 3;           // threads: checkpoints, log, progress

// The bytes that a rank needs beside those that its process has already.
struct RankNeed {
  uint64_t host = 0, gpu = 0, data = 0, addresses = 0;
};

uint64_t stack_bytes() {
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? limit.rlim_cur : 8 * kMiB;
}

RankNeed rank_need(const Session& session) {
  const bool on_host = session.executor->device().properties().on_host;
  const uint64_t arena = session.executor->arena_bytes();
  RankNeed out;
  int loaders = loader_workers(session, *session.data.train);
  if (session.data.eval) loaders += loader_workers(session, *session.data.eval);
  const auto services = static_cast<uint64_t>(loaders) + static_cast<uint64_t>(kServices);
  const uint64_t threads = services + static_cast<uint64_t>(bound_cpu_count());
  const HostMemory other = host_memory(session);
  out.host = kHostAllowance + kOfThread * threads + other.total() + (on_host ? arena : 0);
  if (!on_host) {
    out.gpu = arena + other.samples + (session.options.gpu ? kDescribedGpuReserve : kGpuLibraries);
  }
  out.data = out.host + stack_bytes() * threads;
  out.addresses = out.data + kHeap * services;
  return out;
}

// The needs of the ranks of this machine.
std::vector<RankNeed> needs_here(const Session& session) {
  const RunRanks& ranks = session.options.ranks;
  const RankNeed own = rank_need(session);
  if (ranks.world == 1) return {own};
  // A described GPU is that of every node.
  const int local = session.options.gpu ? ranks.world : ranks.on_this_node();
  const auto here = static_cast<size_t>(std::min(local, ranks.world));
  if (ranks.store != nullptr) {
    static const auto subject = std::make_shared<const std::string>("whether the memory suffices");
    std::vector<RankNeed> all(static_cast<size_t>(ranks.world));
    HostStream host;
    constexpr size_t kNumbers = sizeof(RankNeed) / sizeof(int64_t);
    ranks.collectives->wait(
        ranks.collectives->all_gather(&own, all.data(), kNumbers, DType::i64, host, subject), host);
    const size_t first = static_cast<size_t>(ranks.rank) / here * here;
    const auto begin = all.begin() + static_cast<ptrdiff_t>(first);
    return {begin, begin + static_cast<ptrdiff_t>(std::min(here, all.size() - first))};
  }
  const RankCoordinates::Place& pipeline = session.coordinates.pipeline;
  if (pipeline.count == 1) return std::vector<RankNeed>(here, own);
  std::vector<RankNeed> out;
  const int size = ranks.world / pipeline.count;  // ranks with the same stages
  std::vector<RankNeed> needs;                    // of those along the pipeline
  for (int rank = 0; rank * size < static_cast<int>(here); ++rank) {
    const int like = session.executor->training().equal_rank(rank, pipeline.count);
    needs.push_back(like < rank ? needs[static_cast<size_t>(like)]
                    : rank == pipeline.index
                        ? own
                        : rank_need(open_planned_rank(*session.experiment, session.options,
                                                      ranks.world, rank * size)));
    for (int i = 0; i < size && out.size() < here; ++i) out.push_back(needs.back());
  }
  return out;
}

// `running`: the ranks exist, and what each uses now is part of what they have.
MemoryFit fit_in(const MemoryLimit& limit, const std::vector<RankNeed>& ranks, bool running) {
  MemoryFit out{.owner = limit.owner, .has = limit.has};
  using Of = MemoryLimit::Of;
  if (limit.of == Of::machine || limit.of == Of::budget) {
    for (const RankNeed& rank : ranks) {
      out.needs += std::max(limit.peak, limit.used + rank.host);
    }
    if (running && limit.of == Of::machine) out.has += limit.used * (ranks.size() - 1);
    if (ranks.size() > 1) out.ranks = fmt::format(" on {} ranks", ranks.size());
    return out;
  }
  for (const RankNeed& rank : ranks) {
    const uint64_t need = limit.of == Of::gpu    ? rank.gpu
                          : limit.of == Of::data ? rank.data
                                                 : rank.addresses;
    out.needs = std::max(out.needs, limit.used + need);
  }
  return out;
}

}  // namespace

HostMemory host_memory(const Session& session) {
  HostMemory out;
  const LoaderOptions loader = train_loader_options(session, 0, 1);
  out.batches = batch_memory_bytes(batch_fields(*session.data.train, loader), loader.micro_batch,
                                   loader.slots);
  if (session.data.eval) {
    out.evaluation = batch_memory_bytes(session.data.eval->fields(), session.batch.micro_batch,
                                        PrefetchOptions{}.slots);
    if (const auto& samples = session.experiment->evaluation.predictions) {
      // Those of a micro-batch, then those of all samples in a vector that grows.
      const int64_t outputs = session.executor->training().output_spec.shape.elements();
      const int64_t all = std::min(*samples, session.data.eval->size());
      out.evaluation +=
          sizeof(double) * static_cast<size_t>(outputs + outputs / session.batch.micro_batch * all);
    }
  }
  const LoggingConfig& logging = session.experiment->logging;
  if (logging.tensorboard) out.evaluation = std::max(out.evaluation, out.batches);  // images
  out.samples = sample_bytes(session);
  const Executor& executor = *session.executor;
  const bool on_host = session.executor->device().properties().on_host;
  if (const Mesh& mesh = session.mesh; mesh.size() > 1 && on_host) {
    out.messages = CollectiveAlgorithms::scratch_bytes(mesh.size());
    for (const std::string& axes :
         session.groups ? session.groups->sets() : std::set<std::string>()) {
      const bool own = axes.starts_with(mesh_axes::kPipeline) || mesh.size(axes) < mesh.size();
      if (own) out.messages += CollectiveAlgorithms::scratch_bytes(mesh.size(axes));
    }
  }
  const bool shards = session.shares_state();
  if (shards || saves_in_background(session)) {
    out.snapshot = snapshot_bytes(executor, shards ? session.options.ranks.world : 1);
  }
  for (const Node& node : executor.training().graph.nodes) {
    if (node.op->name != "galore_projection" || !on_host) continue;
    const SpecList inputs = executor.training().graph.input_specs(node);
    out.vectors = std::max(out.vectors, projection_scratch_bytes(inputs, node.attributes));
  }
  // A tensor in the order of files, and that in f32; histograms read both likewise.
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (!rules_of(tensor.role).checkpointed) continue;
    const StateInFiles file = in_files(executor, tensor);
    const bool permuted = file.info != nullptr && !file.info->file.permutation.empty();
    if (!permuted && !shards && !logging.histogram_steps) continue;
    const auto elements = static_cast<size_t>(tensor.spec.shape.elements());
    out.files = std::max(out.files, 2 * sizeof(float) * elements);
  }
  // The largest parameter in f32 while weights are initialized: on a CPU before the activations
  // exist.
  size_t largest = 0;
  for (const ParameterInfo& info : executor.weights()) {
    largest = std::max(largest, sizeof(float) * static_cast<size_t>(info.spec.shape.elements()));
  }
  const size_t later = on_host ? executor.training_program().work_bytes() + out.batches : 0;
  out.files = std::max(out.files, largest - std::min(largest, later));
  return out;
}

bool saves_in_background(const Session& session) {
  const CheckpointConfig& checkpoint = session.experiment->checkpoint;
  const EvaluationConfig& evaluation = session.experiment->evaluation;
  const auto before_end = [&](const std::optional<int64_t>& steps,
                              const std::optional<double>& epochs) {
    return (steps && *steps < session.max_steps) ||
           (epochs && *epochs < session.epoch(session.max_steps));
  };
  return checkpoint.async &&
         (checkpoint.save_minutes || before_end(checkpoint.save_steps, checkpoint.save_epochs) ||
          (session.has_evaluation() && before_end(evaluation.eval_steps, evaluation.eval_epochs)));
}

std::string MemoryFit::text() const {
  if (owner.empty()) return "the limits of memory are unknown";
  return fmt::format("{} {}{}{}, {} {}", fits() ? "at most" : "does not fit: needs",
                     bytes_text(needs), fits() ? " needed" : "", ranks, owner, bytes_text(has));
}

std::vector<MemoryLimit> limits_of(const Session& session) {
  const DeviceProperties& device = session.executor->device().properties();
  std::vector<MemoryLimit> out;
  if (!session.options.gpu) out = memory_limits();
  const auto budget = parse_bytes(session.experiment->memory.budget);
  if (!device.on_host) {
    // A driver needs addresses that it does not use.
    std::erase_if(out, [](const auto& limit) { return limit.of != MemoryLimit::Of::machine; });
    out.push_back({budget
                       ? "memory.budget is"
                       : (session.options.gpu ? session.options.gpu->name : device.name) + " has",
                   MemoryLimit::Of::gpu, 0, budget.value_or(device.free_memory)});
  } else if (budget) {
    const MemoryLimit machine = out.empty() ? MemoryLimit{} : out.front();
    // The need of addresses is an estimate from above.
    std::erase_if(out, [](const auto& limit) { return limit.of != MemoryLimit::Of::data; });
    out.push_back(
        {"memory.budget is", MemoryLimit::Of::budget, machine.used, *budget, machine.peak});
  }
  return out;
}

MemoryFit memory_fit(const Session& session, const std::vector<MemoryLimit>& limits) {
  const std::vector<RankNeed> ranks = needs_here(session);
  MemoryFit nearest;
  double most = -1;
  for (const MemoryLimit& limit : limits) {
    MemoryFit fit = fit_in(limit, ranks, session.options.ranks.store != nullptr);
    const double share =
        static_cast<double>(fit.needs) / std::max(1.0, static_cast<double>(fit.has));
    if (share <= most) continue;
    most = share;
    nearest = std::move(fit);
  }
  return nearest;
}

Session open_planned_rank(Experiment& experiment, SessionOptions options, int world, int rank) {
  options.log = {};
  options.probe = {};
  options.agreement = nullptr;
  options.log_notices = false;
  options.ranks = {.collectives = unconnected_ranks(world),
                   .rank = rank,
                   .world = world,
                   .local_rank = options.ranks.local_rank,
                   .ranks_per_node = options.ranks.ranks_per_node};
  return open_session(experiment, options);
}

}  // namespace dltrain

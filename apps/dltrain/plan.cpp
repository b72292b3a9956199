// dltrain plan: what a run will need, before anything is allocated.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "comm/unconnected_ranks.h"
#include "cpu/engine.h"
#include "dltrain/plan_sections.h"
#include "launch/cpus.h"
#include "run/memory_fit.h"

namespace dltrain {

Session open_planned(Experiment& experiment, int world, int ranks_per_node,
                     const std::optional<Gpu>& gpu, const std::optional<DataSplit>& data,
                     bool evaluation) {
  if (gpu) check_precision(*gpu, experiment);
  return open_planned_rank(experiment,
                           {.engines = engines(),
                            .ranks = {.ranks_per_node = ranks_per_node},
                            .evaluation = evaluation,
                            .gpu = gpu,
                            .data = data},
                           world, 0);
}

ExitCode print_plan(Experiment& experiment, const PlanRequest& request,
                    const std::function<void(Session&)>& also) {
  if (request.world > 1 && request.unconnected && std::getenv("OMP_NUM_THREADS") == nullptr) {
    // The threads that the launcher would give each rank on this machine.
    const int node = request.ranks_per_node > 0 ? request.ranks_per_node : request.world;
    const int here = std::min(node, request.world);
    set_cpu_threads(divide_cpus(find_usable_cpus(), here).threads);
  }
  SessionOptions options{.engines = engines(),
                         .ranks = {.collectives = unconnected_ranks(request.world),
                                   .world = request.world,
                                   .ranks_per_node = request.ranks_per_node}};
  if (request.passes) {
    options.log = [](std::string_view pass, const Graph& graph) {
      fmt::print("after {}:\n{}\n", pass, print_graph(graph));
    };
  }
  MachineRates rates = request.rates;
  if (request.gpus.size() > 1) {
    if (!request.timeline.empty() || request.frontier || request.movement) {
      fail(ExitCode::usage, "--timeline, --frontier and --movement require one GPU in --gpu");
    }
    const auto micro_batch = experiment.training.micro_batch_size;
    bool any = false;
    for (const Gpu& gpu : request.gpus) {
      if (const std::string lacks = missing_precision(gpu, experiment); !lacks.empty()) {
        fmt::print("{:<12}  does not compute in {}\n", gpu.name, lacks);
        continue;
      }
      rates.gpu = options.gpu = gpu;
      experiment.training.micro_batch_size = micro_batch;  // `auto` depends on the GPU
      const Session session = open_session(experiment, options);
      any = print_gpu_line(session, rates, &gpu == &request.gpus.front()) || any;
    }
    return any ? ExitCode::ok : ExitCode::memory;
  }
  if (!request.gpus.empty()) {
    rates.gpu = options.gpu = request.gpus.front();
    check_precision(*rates.gpu, experiment);
  }
  if (request.frontier) {
    print_frontier(experiment, options);
    return ExitCode::ok;
  }
  if (request.movement) {
    print_movement(experiment, options);
    return ExitCode::ok;
  }
  Session session = open_session(experiment, options);
  MemoryFit fit;
  std::vector<MemoryLimit> limits;
  if (rates.gpu || request.on_this_machine || experiment.memory.budget != "device") {
    limits = limits_of(session);  // before other sessions take memory
    fit = memory_fit(session, limits);
  }
  print_session(session, request, rates);
  if (also) also(session);
  if (limits.empty()) return ExitCode::ok;
  if (!rates.gpu || !fit.fits()) fmt::print("memory: {}\n", memory_verdict(session, fit, limits));
  return fit.fits() ? ExitCode::ok : ExitCode::memory;
}

std::array<CLI::Option*, 2> add_links(CLI::App& command, MachineRates& rates) {
  const std::array out{
      command.add_option("--link", rates.link,
                         "Bytes per second that a rank sends, for the estimates (default 1e10)"),
      command.add_option("--node-link,--network", rates.node_link,
                         "Bytes per second to ranks of other nodes (default: as --link)")};
  for (CLI::Option* link : out) link->check(CLI::PositiveNumber);
  return out;
}

namespace {

// Completes --world and --nproc-per-node by a number of nodes.
void divide_among_nodes(PlanRequest& request, int nodes) {
  if (request.world == 0) request.world = nodes * request.ranks_per_node;
  if (request.world == 0) {
    fail(ExitCode::usage, "--nodes requires --world or --nproc-per-node");
  }
  if (request.world % nodes != 0) {
    fail(ExitCode::usage, "--world {} cannot be divided among {} nodes", request.world, nodes);
  }
  const int each = request.world / nodes;
  if (request.ranks_per_node != 0 && request.ranks_per_node != each) {
    fail(ExitCode::usage, "--world {} on {} nodes are {} ranks a node, not --nproc-per-node {}",
         request.world, nodes, each, request.ranks_per_node);
  }
  request.ranks_per_node = each;
}

}  // namespace

void check_nodes(int world, int ranks_per_node) {
  if (ranks_per_node == 0 || world <= ranks_per_node || world % ranks_per_node == 0) return;
  fail(ExitCode::usage, "--world {} cannot be divided among nodes of --nproc-per-node {}", world,
       ranks_per_node);
}

CommandBody add_plan(CLI::App& command) {
  struct Options {
    ConfigOptions config;
    PlanRequest request{.world = 0};  // 0: as in the configuration
    int nodes = 0;                    // 0: not given
    std::string gpu;
    bool search = false;
  };
  auto options = std::make_shared<Options>();
  options->config.add_to(command, ConfigOptions::Use::training);
  command.add_option("--world", options->request.world, "Plan for this many ranks")
      ->check(CLI::Range(1, 65536));
  command
      .add_option("--nproc-per-node", options->request.ranks_per_node,
                  "Ranks of a node (default: all ranks are on one); without --world also the "
                  "ranks in all")
      ->check(CLI::Range(1, 65536));
  command
      .add_option("--nodes", options->nodes,
                  "Nodes with the same number of ranks each, instead of --world or "
                  "--nproc-per-node")
      ->check(CLI::Range(1, 65536));
  MachineRates& rates = options->request.rates;
  CLI::Option* const flops = command.add_option(
      "--flops", rates.flops,
      "FLOP per second of a rank, for the estimate of exposed communication (default 1e12)");
  flops->check(CLI::PositiveNumber);
  const auto [link, node_link] = add_links(command, rates);
  const std::array rates_given{flops, link, node_link};
  StorageRates& storage = options->request.storage;
  CLI::Option* disk =
      command
          .add_option("--disk", storage.disk,
                      "Bytes per second that all ranks together write to and read from the "
                      "checkpoints' file system, for the estimate of their times (default 1e9)")
          ->check(CLI::PositiveNumber);
  command
      .add_option("--grace", storage.grace,
                  "Seconds from a scheduler's SIGTERM to SIGKILL; a warning tells if a checkpoint "
                  "takes longer to save (default 30, as of Slurm and Kubernetes)")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--gpu", options->gpu,
                  "Plan for a GPU that need not be here, with an estimate of the step's time: "
                  "h100-80g, h200, a100-80g, a100-40g, l4, rtx4090, t4, all, or a YAML file")
      ->excludes(rates_given[0])
      ->excludes(command.get_option("--device"));
  command.add_flag("--passes", options->request.passes, "Print the graph after each pass");
  add_output(command, "--timeline", options->request.timeline,
             "Write the estimated step to this file, as a trace for ui.perfetto.dev");
  command
      .add_flag("--frontier", options->request.frontier,
                "Print memory against time of recomputation (memory.recompute) instead of the plan")
      ->excludes("--timeline");
  command
      .add_flag("--movement", options->request.movement,
                "Print the bytes that kernels read and write, by kind of kernel and beside those "
                "of the same step op by op, instead of the plan")
      ->excludes("--timeline")
      ->excludes("--frontier");
  CLI::Option* search =
      command.add_flag("--search", options->search,
                       "Find the fastest layouts of --world ranks that fit --gpu: data, context, "
                       "expert, tensor and pipeline parallelism, ZeRO stage, micro-batch, "
                       "recomputation");
  for (const char* other :
       {"--passes", "--timeline", "--frontier", "--movement", "--disk", "--grace"}) {
    search->excludes(command.get_option(other));
  }
  return [options, rates_given, disk] {
    const LoadExperiment load = [&](const std::vector<std::string>& extra) {
      return options->config.load(extra);
    };
    PlanRequest request = options->request;
    if (options->nodes > 0) divide_among_nodes(request, options->nodes);
    if (options->search) {
      request.world = std::max(request.world, request.ranks_per_node);
      if (options->gpu.empty() || request.world < 2) {
        fail(ExitCode::usage, "--search requires --gpu, and --world with at least 2 ranks");
      }
      check_nodes(request.world, request.ranks_per_node);
      request.gpus = find_gpus(options->gpu);
      if (request.gpus.size() != 1) fail(ExitCode::usage, "--search requires one GPU in --gpu");
      search_layouts(load, request);
      return ExitCode::ok;
    }
    Experiment experiment = load({});
    const bool here = request.world == 0 && options->gpu.empty();
    request.storage.disk_given = disk->count() > 0;
    if (request.world == 0) {
      request.world =
          std::max(static_cast<int>(experiment.parallelism.least_ranks()), request.ranks_per_node);
    }
    check_nodes(request.world, request.ranks_per_node);
    if (!options->gpu.empty()) request.gpus = find_gpus(options->gpu);
    const bool one_node = request.ranks_per_node == 0 || request.world <= request.ranks_per_node;
    for (const CLI::Option* rate : rates_given) {
      if (rate->count() == 0) continue;
      if (request.world == 1) {
        fail(ExitCode::usage, "{} requires several ranks (--world)", rate->get_name());
      }
      if (rate == rates_given.back() && one_node) {
        fail(ExitCode::usage, "{}: all {} ranks are on one node (--nproc-per-node)",
             rate->get_name(), request.world);
      }
    }
    request.on_this_machine = here;
    MachineRates rates = request.rates;
    if (request.gpus.size() > 1 && experiment.parallelism.layout == LayoutChoice::automatic) {
      fail_at(experiment.parallelism, "layout", "auto requires one GPU in --gpu");
    }
    if (!request.gpus.empty()) rates.gpu = request.gpus.front();
    const std::string layout =
        choose_layout(experiment, load,
                      {.world = request.world, .ranks_per_node = request.ranks_per_node}, rates);
    if (!layout.empty()) fmt::print("{}\n", layout);
    return print_plan(experiment, request);
  };
}

}  // namespace dltrain

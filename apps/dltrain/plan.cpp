// dltrain plan: what a run will need, before anything is allocated.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/memory.h"
#include "comm/unconnected_ranks.h"
#include "compile/plan_report.h"
#include "cpu/engine.h"
#include "dltrain/commands.h"
#include "dltrain/gpu_estimate.h"
#include "dltrain/plan_memory.h"
#include "launch/cpus.h"
#include "run/advice.h"
#include "run/memory_fit.h"

namespace dltrain {
namespace {

std::string human_count(double n) {
  if (n < 1e4) return fmt::format("{:.0f}", n);
  if (n < 1e6) return fmt::format("{:.1f} k", n / 1e3);
  if (n < 1e9) return fmt::format("{:.1f} M", n / 1e6);
  if (n < 1e12) return fmt::format("{:.1f} G", n / 1e9);
  return fmt::format("{:.1f} T", n / 1e12);
}

// "210 FLOP", "2.1 GFLOP"
std::string human_flop(double n) {
  return human_count(n) + (n < 1e4 ? " FLOP" : "FLOP");
}

int64_t parameter_elements(const Session& session) {
  int64_t sum = 0;
  for (const ParameterInfo& info : session.executor->training().parameters) {
    if (info.role == Role::parameter) sum += info.spec.shape.elements();
  }
  return sum;
}

// The weights that model.lora.base keeps in codes.
void print_codes(const std::vector<ParameterInfo>& parameters) {
  int64_t weights = 0, elements = 0;
  size_t bytes = 0;
  for (const ParameterInfo& info : parameters) {
    if (info.codes.format == WeightFormat::wide) continue;
    ++weights;
    elements += info.spec.shape.elements();
    for (const CodedPart& part : coded_parts(info.codes, info.spec.shape[0], info.spec.shape[1])) {
      bytes += part.spec.bytes();
    }
  }
  if (weights == 0) return;
  fmt::print("  lora base: {} weights of {} elements in codes, {}, {:.3f} bits each\n", weights,
             elements, bytes_text(bytes),
             8 * static_cast<double>(bytes) / static_cast<double>(elements));
}

void print_layers(const PlanReport& r) {
  std::vector<LayerCost> rows = fold_equal_blocks(r.layers);
  LayerCost total{.layer = "total"};
  for (const LayerCost& row : rows) {
    total.parameters += row.parameters;
    total.activation_bytes += row.activation_bytes;
    total.forward_flops += row.forward_flops;
    total.backward_flops += row.backward_flops;
  }
  rows.push_back(total);
  std::vector<std::string> names;
  size_t width = 4;
  bool folded = false;
  for (const LayerCost& row : rows) {
    names.push_back(row.layer + (row.copies > 1 ? fmt::format(" (x{})", row.copies) : ""));
    width = std::max(width, names.back().size());
    folded = folded || row.copies > 1;
  }
  fmt::print("layers, for one micro-batch{}:\n", folded ? " (xN: sums over N equal blocks)" : "");
  fmt::print("  {:<{}}  {:>12}  {:>11}  {:>12}  {:>13}\n", "name", width, "parameters",
             "activations", "forward FLOP", "backward FLOP");
  for (size_t i = 0; i < rows.size(); ++i) {
    const LayerCost& row = rows[i];
    fmt::print("  {:<{}}  {:>12}  {:>11}  {:>12}  {:>13}\n", names[i], width, row.parameters,
               bytes_text(row.activation_bytes), human_count(row.forward_flops),
               human_count(row.backward_flops));
  }
}

// Returns whether layers share a parameter; stages of a pipeline add its gradients in another
// order.
bool has_tied_weights(const Graph& graph) {
  std::map<ValueId, std::string_view> layer_of;
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::forward) continue;
    for (ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      const GraphValue& value = graph.value(id);
      const bool copy = value.role == Role::low_precision;
      if (!copy && value.role != Role::parameter) continue;
      const auto [first, is_new] = layer_of.try_emplace(copy ? value.of : id, node.layer);
      if (!is_new && first->second != node.layer) return true;
    }
  }
  return false;
}

void print_promises(const Session& session) {
  fmt::print("reproducibility (docs/equality.md):\n");
  fmt::print("  bit-identical: a second run, a resumed run (same machine and number of threads)\n");
  if (session.batch.micro_batches() == 1) return;
  const bool fixed = session.experiment->training.reduction == Reduction::fixed;
  const bool tied = fixed && has_tied_weights(session.executor->training().graph);
  fmt::print("  {}: another number of ranks or micro-steps for the same global batch{}{}\n",
             fixed ? "bit-identical" : "within tolerance",
             fixed ? fmt::format(" and micro_batch_size {}", session.batch.micro_batch)
                   : ", every zero_stage",
             tied ? ", but not another number of pipeline stages (layers share a weight)" : "");
}

// Compares with the same step without recomputation.
void print_recompute(const Session& session) {
  const StepGraph& graph = session.executor->training();
  const MemoryConfig& memory = session.experiment->memory;
  if (memory.recompute == Recompute::none && memory.recompute_layers.empty()) return;
  if (graph.recomputed_nodes == 0) {
    fmt::print("recompute: no forward call runs again\n");
    return;
  }
  SessionOptions options = session.options;
  options.log = {};
  options.evaluation = options.recompute = false;
  const PlanReport kept = open_session(*session.experiment, options).executor->report();
  const PlanReport r = session.executor->report();
  fmt::print("recompute: {} forward calls run again, {:+.1f} % FLOP; {} of memory instead of {}\n",
             graph.recomputed_nodes, 100 * (r.flops_per_step / kept.flops_per_step - 1),
             bytes_text(r.arena_bytes), bytes_text(kept.arena_bytes));
}

// Prints the bytes that one rank sends in a step, and how much of their time the computation hides.
void print_traffic(const Session& session, const PlanReport& r, const MachineRates& rates) {
  const Traffic& t = r.traffic;
  const double messages = 2.0 * static_cast<double>(t.reduced) + static_cast<double>(t.scattered) +
                          static_cast<double>(t.gathered);
  const auto whole = [](size_t bytes) { return bytes_text(bytes); };
  fmt::print(
      "ranks: each sends {} per step ({} all-reduced, {} reduce-scattered, {} gathered{}{}), "
      "{:.2f} "
      "times the parameters in f32\n",
      bytes_text(static_cast<size_t>(t.sent())), whole(t.reduced), whole(t.scattered),
      whole(t.gathered),
      t.exchanged > 0 ? fmt::format(", {} between experts", whole(t.exchanged)) : "",
      t.passed_on > 0 ? fmt::format(", {} to single ranks", whole(t.passed_on)) : "",
      messages / (sizeof(float) * static_cast<double>(parameter_elements(session))));
  const RankTopology& topology = session.executor->topology();
  if (topology.nodes() > 1) {
    fmt::print("  on {} nodes of {}: {} go to ranks of the same node, {} to other nodes\n",
               topology.nodes(), topology.per_node, bytes_text(static_cast<size_t>(t.within_node)),
               bytes_text(static_cast<size_t>(t.between_nodes)));
  }
  if (session.coordinates.tensor.count > 1) {
    fmt::print("  tensor parallelism: groups of {} ranks share the layers of the same samples\n",
               session.coordinates.tensor.count);
  }
  if (const int ranks = session.coordinates.context.count; ranks > 1) {
    fmt::print("  context parallelism: groups of {} ranks share the tokens of the same samples\n",
               ranks);
  }
  if (const int experts = topology.mesh.size(mesh_axes::kExpert); experts > 1) {
    fmt::print("  expert parallelism: groups of {} ranks divide the experts\n", experts);
  }
  if (topology.mesh.size(mesh_axes::kReplica) > 1) {
    fmt::print(
        "  the state is sharded over groups of {} ranks; each of the {} groups holds all of it\n",
        topology.mesh.size(mesh_axes::kState), topology.mesh.size(mesh_axes::kReplica));
  } else if (session.experiment->parallelism.zero_shard_size == "node" && topology.nodes() == 1) {
    fmt::print("  all ranks are assumed to be on one node (--nproc-per-node)\n");
  }
  const StepEstimate e =
      estimate_step(session.executor->training().graph, session.batch.micro_steps, topology, rates);
  const std::string between =
      topology.nodes() > 1 && rates.node_link > 0
          ? fmt::format(", {}/s between nodes", bytes_text(static_cast<size_t>(rates.node_link)))
          : "";
  const std::string rank =
      rates.gpu ? "the times of " + rates.gpu->name : human_flop(rates.flops) + "/s a rank";
  fmt::print(
      "  estimate at {} and {}/s a link{} ({}, --link, --node-link): {:.3g} s of "
      "arithmetic, {:.3g} s of communication, of which {:.3g} s are exposed ({:.0f} % overlap)\n",
      rank, bytes_text(static_cast<size_t>(rates.link)), between, rates.gpu ? "--gpu" : "--flops",
      e.compute, e.communication, e.exposed,
      e.communication > e.exposed ? 100 * (1 - e.exposed / e.communication)
                                  : (e.communication > 0 ? 0.0 : 100.0));
}

// Returns the first and last layer of the nodes that a rank runs; with several chunks those of its
// first.
std::string layers_of(const Session& session, const PlanReport& report) {
  std::string first, last;
  const int chunks = session.executor->training_program().chunks();
  for (const Node& node : session.executor->training().graph.nodes) {
    if (chunks == 1 || node.phase != Phase::forward || node.chunk > 0) break;
    if (node.layer == "pipeline") continue;
    if (first.empty()) first = node.layer;
    last = node.layer;
  }
  if (chunks > 1) return fmt::format("{} to {}, {} more", first, last, chunks - 1);
  for (const LayerCost& layer : report.layers) {
    if (layer.layer == "pipeline" || layer.activation_bytes == 0) continue;
    if (first.empty()) first = layer.layer;
    last = layer.layer;
  }
  return first == last ? first : first + " to " + last;
}

// Prints a row for each stage of a pipeline, that of its first data-parallel rank. Equal stages in
// sequence have one, with the memory of the first, which has the most micro-batches in flight.
void print_stages(const Session& session) {
  const RankCoordinates::Place& stage = session.coordinates.pipeline;
  if (stage.count == 1) return;
  struct Row {
    int first, last;                                      // stage
    std::string layers, parameters, memory, flop, bytes;  // bytes: the exact memory
    std::string name() const {
      return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    }
  };
  std::vector<Row> rows;
  std::vector<double> flops;
  for (int i = 0; i < stage.count; ++i) {
    const int like = session.executor->training().equal_rank(i, stage.count);
    if (like < i && rows.back().first == like) {
      rows.back().last = i;
      flops.push_back(flops.back());
      continue;
    }
    const Session other = open_stage(session, i);
    const PlanReport r = other.executor->report();
    int64_t parameters = 0;
    for (const LayerCost& layer : r.layers) parameters += layer.parameters;
    flops.push_back(r.flops_per_step / static_cast<double>(session.batch.micro_steps));
    const size_t least = least_bytes(other);
    rows.push_back({i, i, layers_of(other, r), fmt::format("{}", parameters),
                    bytes_text(r.arena_bytes), human_count(flops.back()),
                    least == r.arena_bytes ? fmt::format("{}", least)
                                           : fmt::format("{}-{}", least, r.arena_bytes)});
  }
  const double busy = static_cast<double>(session.batch.micro_steps) * std::ranges::max(flops);
  const ParallelismConfig& parallelism = session.experiment->parallelism;
  const bool split = parallelism.pipeline_schedule == PipelineSchedule::zero_bubble;
  std::vector<StageTimes> times;
  for (StepSchedule& schedule : session.schedules()) {
    const double each = flops[times.size()] / (3 * chunks_of(schedule));
    StageTimes& rank = times.emplace_back(StageTimes{std::move(schedule), {}});
    for (const ScheduledSegment& segment : rank.schedule) {
      rank.seconds.push_back(segment.segment == Phase::update               ? 0
                             : segment.segment == Phase::backward && !split ? 2 * each
                                                                            : each);
    }
  }
  fmt::print("stages ({}, {} micro-batches; by FLOP the slowest waits for {:.0f} % of a step):\n",
             parallelism.pipeline_schedule == PipelineSchedule::interleaved
                 ? fmt::format("interleaved, {} on each rank", parallelism.virtual_stages)
             : parallelism.pipeline_schedule == PipelineSchedule::gpipe ? "gpipe"
             : split                                                    ? "zero_bubble"
                                                                        : "1f1b",
             session.batch.micro_steps, 100 * (1 - busy / step_seconds(times)));
  if (parallelism.zero_stage > 1) {
    fmt::print(
        "  zero_stage {}: every micro-batch reduces gradients{} over the ranks; 1 does once\n",
        parallelism.zero_stage, parallelism.zero_stage == 3 ? " and gathers parameters" : "");
  }
  size_t width = 6;
  for (Row& row : rows) {
    if (row.first < row.last) {
      row.layers += ", and so on";
      row.memory = "<= " + row.memory;
      row.bytes = "<= " + row.bytes;
    }
    width = std::max(width, row.layers.size());
  }
  const auto print_row = [&](const std::string& name, const Row& row) {
    fmt::print("  {:>5}  {:<{}}  {:>12}  {:>13}  {:>12}  {:>13}\n", name, row.layers, width,
               row.parameters, row.memory, row.flop, row.bytes);
  };
  print_row(parallelism.virtual_stages > 1 ? "rank" : "stage",
            {0, 0, "layers", "parameters", "memory", "FLOP", "bytes"});
  for (const Row& row : rows) print_row(row.name(), row);
}

void print_session(const Session& session, const PlanRequest& request, const MachineRates& rates) {
  const PlanReport r = session.executor->report();
  const StepGraph& graph = session.executor->training();
  fmt::print(
      "run: {} steps of {} samples ({:.2f} epochs of {}), {} rank{} × {} micro-step{} of {}\n",
      session.max_steps, session.batch.global_batch, session.epoch(session.max_steps),
      session.data.train->size(), session.options.ranks.world,
      session.options.ranks.world == 1 ? "" : "s", session.batch.micro_steps,
      session.batch.micro_steps == 1 ? "" : "s", session.batch.micro_batch);
  if (const SourceMix* mix = session.data.train->sources()) {
    const int64_t end = session.position_at(session.max_steps).cursor;
    const SourceMix::Counts draws = mix->counts(end);
    const std::vector<double> epochs = mix->epochs(end);
    for (size_t k = 0; k < epochs.size(); ++k) {
      fmt::print(
          "  source {}: {} of the samples ({:.4g} %), {:.4g} epochs of {}\n",
          mix->sources()[k].name, draws[k],
          100.0 * static_cast<double>(draws[k]) / static_cast<double>(std::max<int64_t>(end, 1)),
          epochs[k], mix->sources()[k].samples);
    }
  }
  const Optimizer& optimizer = *session.experiment->optimizer;
  if (const auto& scale = optimizer.scale_learning_rate) {
    fmt::print("learning rate: {:.6g}, that of a batch of {} times {:.6g} (scale_learning_rate)\n",
               optimizer.peak_learning_rate(session.batch.global_batch), scale->base_batch,
               scale->factor(session.batch.global_batch));
  }
  fmt::print("device: {}\n", session.executor->device().properties().name);
  std::string inputs;
  for (size_t i = 0; i + 1 < graph.slots.size(); ++i) {
    const GraphValue& value = graph.graph.value(graph.slots[i]);
    inputs += fmt::format("{}{} {}", i == 0 ? "" : ", ",
                          value.name.substr(value.name.find('.') + 1), to_string(value.spec));
  }
  fmt::print("model: {} parameters, {} → output {}\n", parameter_elements(session), inputs,
             to_string(graph.output_spec));
  for (const std::string& name : graph.unused) fmt::print("  unused: {} gets no gradient\n", name);
  if (const LoraConfig* lora = session.experiment->model.adapters()) {
    int64_t adapters = 0, learning = 0;
    for (const ParameterInfo& info : graph.parameters) {
      if (info.role != Role::parameter || info.adaptation == Adaptation::frozen) continue;
      adapters += info.name.ends_with(kLoraA) ? 1 : 0;
      learning += info.spec.shape.elements();
    }
    fmt::print(
        "  lora: {} adapters of rank {}; {} parameters learn, {:.2g} % of all\n", adapters,
        lora->rank, learning,
        100.0 * static_cast<double>(learning) / static_cast<double>(parameter_elements(session)));
    print_codes(graph.parameters);
  }
  if (!graph.frozen.empty()) {
    fmt::print("  frozen: {} tensors, {} to {}\n", graph.frozen.size(), graph.frozen.front(),
               graph.frozen.back());
  }
  if (!graph.gathered_tokens.empty()) {
    fmt::print("  gathered: {} op{} that run{} on all tokens of a sample on each rank: {}\n",
               graph.gathered_tokens.size(), graph.gathered_tokens.size() == 1 ? "" : "s",
               graph.gathered_tokens.size() == 1 ? "s" : "",
               fmt::join(graph.gathered_tokens, ", "));
  }
  if (!graph.gathered.empty()) {
    fmt::print("  gathered: {} op{} without a rule for the shards of the inputs: {}\n",
               graph.gathered.size(), graph.gathered.size() == 1 ? "" : "s",
               fmt::join(graph.gathered, ", "));
  }
  for (const std::string& sentence : advice(session)) fmt::print("warning: {}\n", sentence);
  print_stages(session);
  print_layers(r);
  print_memory(session, r);
  print_lengths(session, r);
  print_host_memory(session);
  print_recompute(session);
  fmt::print("step: {}, at least {} of memory traffic, {} kernel calls\n",
             human_flop(r.flops_per_step), bytes_text(static_cast<size_t>(r.bytes_per_step)),
             r.kernel_calls);
  if (session.options.ranks.world > 1) print_traffic(session, r, rates);
  print_checkpoint(session, request.storage, rates.link);
  if (rates.gpu) print_gpu_estimate(session, rates);
  if (!request.timeline.empty()) write_timeline(request.timeline, session, rates);
  print_promises(session);
}

}  // namespace

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

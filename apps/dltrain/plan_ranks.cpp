// dltrain plan: messages between ranks and stages of a pipeline.
#include <algorithm>

#include "base/memory.h"
#include "dltrain/plan_sections.h"

namespace dltrain {

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

namespace {

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

}  // namespace

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

}  // namespace dltrain

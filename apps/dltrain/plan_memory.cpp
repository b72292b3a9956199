#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "cpu/engine.h"
#include "dltrain/plan_sections.h"
#include "run/memory_fit.h"

namespace dltrain {
namespace {

// Rows of name, size and remark, whose columns are as wide as they need to be.
class SizeTable {
 public:
  void add(std::string name, size_t bytes, std::string remark = "") {
    rows_.push_back({std::move(name), bytes_text(bytes), std::move(remark)});
  }
  void print() const {
    size_t width = 0;
    for (const Row& row : rows_) width = std::max(width, row.name.size());
    for (const Row& row : rows_) {
      fmt::print("  {:<{}}  {:>10}{}{}\n", row.name, width, row.size,
                 row.remark.empty() ? "" : "  ", row.remark);
    }
  }

 private:
  struct Row {
    std::string name, size, remark;
  };
  std::vector<Row> rows_;
};

void add_peak(const MemoryPeak& peak, SizeTable& table) {
  if (peak.bytes == 0) return;
  constexpr size_t kMax = 4;
  size_t rest = peak.bytes;
  for (size_t i = 0; i < std::min(kMax, peak.live.size()); ++i) {
    const std::string remark =
        i > 0 ? ""
              : fmt::format("at the peak, in {} of {} ({})", peak.op,
                            peak.layer.empty() ? "the model" : peak.layer, peak.phase);
    table.add("  " + peak.live[i].what, peak.live[i].bytes, remark);
    rest -= peak.live[i].bytes;
  }
  if (peak.live.size() > kMax) {
    table.add(fmt::format("  {} others", peak.live.size() - kMax), rest);
  }
}

// Returns the least and the most that ranks along `context` allocate, the first of which is
// `session`: of up to 16 of them, evenly spaced, because each is compiled.
std::pair<size_t, size_t> context_bytes(const Session& session) {
  const std::vector<int> ranks =
      session.mesh.group(session.options.ranks.rank, mesh_axes::kContext);
  const size_t some = std::min<size_t>(ranks.size(), 16);
  size_t least = session.executor->report().arena_bytes, most = least;
  for (size_t i = 1; i < some; ++i) {
    const int rank = ranks[i * (ranks.size() - 1) / (some - 1)];
    const size_t bytes =
        open_planned_rank(*session.experiment, session.options, session.options.ranks.world, rank)
            .executor->arena_bytes();
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  return {least, most};
}

}  // namespace

size_t least_bytes(const Session& session) {
  const int ranks = session.coordinates.tensor.count;
  const auto is_uneven = [&](const GraphValue& value) {
    if (!value.shard || !value.shard->cut || value.shard->cut->axis != mesh_axes::kTensor) {
      return false;
    }
    const auto& [whole, cut, flat, stage, is_here] = *value.shard;
    return cut->local(whole.shape, 0) != cut->local(whole.shape, ranks - 1);
  };
  if (std::ranges::none_of(session.executor->training().graph.values, is_uneven)) {
    return session.executor->report().arena_bytes;
  }
  return open_planned_rank(*session.experiment, session.options, session.options.ranks.world,
                           session.options.ranks.rank + ranks - 1)
      .executor->arena_bytes();
}

void print_memory(const Session& session, const PlanReport& r) {
  // The kernels of some libraries need memory for each thread.
  const std::string threads =
      !session.executor->device().properties().on_host
          ? ""
          : fmt::format(", with {} thread{}{}", cpu_threads(), cpu_threads() == 1 ? "" : "s",
                        session.options.ranks.world == 1 ? "" : " a rank");
  fmt::print("memory of one rank:\n");
  SizeTable table;
  for (const auto& [kind, bytes] : r.state_bytes) table.add(kind, bytes);
  table.add("activations, workspaces", r.work_bytes,
            r.frames > 1 ? fmt::format("memory is reused; {} micro-batches in flight", r.frames)
                         : fmt::format("memory is reused; the minimum is {}",
                                       bytes_text(r.work_lower_bound)));
  add_peak(r.peak, table);
  if (r.gradient_bytes != 0) {
    table.add("  gradients", r.gradient_bytes, "in the memory of the activations");
  }
  if (r.stage_bytes != 0) table.add("input staging", r.stage_bytes, "for the next two batches");
  table.add("total", r.arena_bytes,
            fmt::format("{} bytes are allocated before the first step{}", r.arena_bytes, threads));
  if (const size_t least = least_bytes(session); least != r.arena_bytes) {
    table.add("  last tensor rank", least,
              fmt::format("{} bytes: the ranks along tensor have shards of different sizes, this "
                          "one the smallest",
                          least));
  }
  if (const auto [least, most] = context_bytes(session); least != most) {
    table.add("  context ranks", most,
              fmt::format("{} to {} bytes: each attends to other blocks of keys", least, most));
  }
  table.print();
}

void print_lengths(const Session& session, const PlanReport& r) {
  if (!session.lengths) return;
  const auto& extents = session.lengths->extents();
  const Buckets* buckets = session.lengths->buckets();
  const auto steps = buckets != nullptr ? buckets->steps_of_variants() : std::vector<int64_t>();
  fmt::print("steps of {} lengths, each with its own plan:\n", extents.size());
  for (size_t i = 0; i < extents.size(); ++i) {
    std::string lengths;
    for (size_t field = 0; field < extents[i].size(); ++field) {
      if (extents[i][field] == 0) continue;
      lengths += fmt::format("{}{} {}", lengths.empty() ? "" : ", ",
                             session.data.train->fields()[field].name, extents[i][field]);
    }
    fmt::print("  {:<24} {:>12}  {}{}\n", "activations, workspaces", bytes_text(r.variant_bytes[i]),
               lengths,
               steps.empty() ? "" : fmt::format(", {} of {} steps", steps[i], buckets->batches()));
  }
}

void print_host_memory(const Session& session) {
  const HostMemory memory = host_memory(session);
  fmt::print("other host memory:\n");
  SizeTable table;
  table.add("prefetched batches", memory.batches,
            fmt::format("{} micro-batches", train_loader_options(session, 0, 1).slots));
  if (memory.evaluation > 0) table.add("batches of evaluations", memory.evaluation);
  if (memory.samples > 0) {
    table.add("text samples", memory.samples, "keys and values of attention, and plans");
  }
  if (memory.messages > 0) table.add("receive buffers", memory.messages, "of collectives");
  if (memory.snapshot > 0) {
    table.add("checkpoint snapshot", memory.snapshot,
              saves_in_background(session) ? "from the first checkpoint before the last step on"
                                           : "of the tensors that this rank writes");
  }
  if (memory.files > 0) table.add("buffers of files", memory.files);
  if (memory.vectors > 0) table.add("singular vectors", memory.vectors, "while they are computed");
  table.print();
}

}  // namespace dltrain

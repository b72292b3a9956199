// `dltrain plan --movement`: bytes that the kernels of a step read and write, by kind of kernel,
// beside those of the same step op by op (Ivanov et al. 2020, "Data Movement Is All You Need").
#include <array>
#include <numeric>
#include <set>

#include "base/memory.h"
#include "compile/cost_model.h"
#include "dltrain/commands.h"

namespace dltrain {
namespace {

constexpr std::array<const char*, 5> kKinds{"products", "norms, losses, sums", "element-wise",
                                            "update", "rows by index"};
size_t kind_of(const Node& node) {
  const KernelKind kind = kernel_kind(node);
  if (kind < KernelKind::elementwise) return 0;
  if (kind == KernelKind::row || kind == KernelKind::column) return 1;
  if (kind == KernelKind::update) return 3;
  return kind == KernelKind::gather ? 4 : 2;
}

struct Movement {
  std::array<double, kKinds.size()> moved{};
  double least = 0;  // if each value were written and read once
  double total() const { return std::accumulate(moved.begin(), moved.end(), 0.0); }
};

// Of a micro-batch, and of the update.
Movement movement_of(const Graph& graph) {
  Movement out;
  std::set<ValueId> written, read;
  for (const Node& node : graph.nodes) {
    const double bytes =
        op_cost(*node.op, graph.input_specs(node), graph.output_specs(node), node.attributes).bytes;
    out.moved[kind_of(node)] += bytes;
    if (bytes == 0) continue;  // a view
    const auto add = [&](std::set<ValueId>& seen, ValueId id) {
      if (id != kNoValue && seen.insert(graph.storage(id)).second) {
        out.least += static_cast<double>(graph.value(id).spec.bytes());
      }
    };
    for (ValueId id : node.inputs) add(read, id);
    for (ValueId id : node.outputs) add(written, id);
  }
  return out;
}

}  // namespace

void print_movement(Experiment& experiment, SessionOptions options) {
  const Movement fused = movement_of(open_session(experiment, options).executor->training().graph);
  options.fuse = false;
  const Movement single = movement_of(open_session(experiment, options).executor->training().graph);
  const auto line = [](const char* name, double before, double now) {
    const auto text = [](double bytes) { return bytes_text(static_cast<size_t>(bytes)); };
    fmt::print("  {:<20} {:>10}  {:>10}  {:>+6.1f}%\n", name, text(before), text(now),
               before > 0 ? 100 * (now / before - 1) : 0.0);
  };
  fmt::print("bytes that a micro-batch and an update move, at least\n  {:<20} {:>10}  {:>10}\n", "",
             "op by op", "this plan");
  for (size_t kind = 0; kind < kKinds.size(); ++kind) {
    line(kKinds[kind], single.moved[kind], fused.moved[kind]);
  }
  line("in all", single.total(), fused.total());
  fmt::print(
      "  if every value of this plan were written once and read once: {}, {:.0f} % of what it "
      "moves\n",
      bytes_text(static_cast<size_t>(fused.least)), 100 * fused.least / fused.total());
}

}  // namespace dltrain

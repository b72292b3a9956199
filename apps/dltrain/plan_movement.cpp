// `dltrain plan --movement`: bytes that the kernels of a step read and write, by kind of kernel,
// beside those of the same step op by op (Ivanov et al. 2020, "Data Movement Is All You Need").
#include <array>
#include <numeric>
#include <set>

#include "base/memory.h"
#include "compile/cost_model.h"
#include "dltrain/commands.h"
#include "dltrain/one_rank.h"
#include "ops/attention.h"
#include "ops/rules.h"

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
  double least = 0;   // if each value were written and read once
  double blocks = 0;  // of the layers in repeated blocks, without the update
  double total() const { return std::accumulate(moved.begin(), moved.end(), 0.0); }
};

// Returns the bytes beyond those of a node if its parts were ops of their own, as in the paper: the
// bias of a product is added by another kernel, and attention writes its weights and reads them.
double bytes_of_parts(const Graph& graph, const Node& node) {
  const SpecList inputs = graph.input_specs(node);
  const size_t bias = node.op->name == "matmul" ? 2 : node.op->name == "fp8_matmul" ? 4 : SIZE_MAX;
  if (inputs.size() > bias && !is_absent(inputs[bias])) {
    return 2 * static_cast<double>(graph.value(node.outputs[0]).spec.bytes());
  }
  const bool forward = node.op->name == "attention";
  if (!forward && node.op->name != "attention_backward") return 0;
  const SpecSpan own = SpecSpan(inputs).subspan(forward ? 0 : 3);  // after dy, y and sums
  const AttentionSizes sizes = attention_sizes("attention", own, node.attributes);
  const AttentionPattern pattern(node.attributes);
  const bool masks = pattern.causal || pattern.masked || pattern.window > 0 || pattern.documents;
  const bool drops = node.attributes.number("dropout") > 0;
  const auto weights =
      static_cast<double>(sizes.samples * sizes.heads * sizes.queries * sizes.keys);
  // Each part of attention reads or writes the weights this often. In the forward: the first
  // product once, scale, mask, softmax and dropout twice each, the second product once. In the
  // backward: the two products of the values once each, dropout twice, softmax three times, scale
  // twice, the two products of queries and keys once each.
  const int passes = forward ? 6 + (masks ? 2 : 0) + (drops ? 2 : 0) : 9 + (drops ? 2 : 0);
  const double element = static_cast<double>(dtype_size(own[0].dtype));
  return weights * (passes * element + (drops ? 1 : 0));  // and which weights are dropped
}

// Adds up the bytes of a micro-batch and of the update. With `in_parts` the parts of ops count as
// ops of their own (bytes_of_parts).
Movement movement_of(const Graph& graph, bool in_parts) {
  Movement out;
  const std::set<std::string_view> in_blocks = layers_of_blocks(graph);
  std::set<ValueId> written, read;
  for (const Node& node : graph.nodes) {
    const double bytes = graph.cost(node).bytes + (in_parts ? bytes_of_parts(graph, node) : 0);
    out.moved[kind_of(node)] += bytes;
    if (node.phase != Phase::update && in_blocks.contains(node.layer)) out.blocks += bytes;
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
  const auto open = [&] { return open_session(experiment, options); };
  const Movement fused = movement_of(open().executor->training().graph, false);
  options.fuse = false;
  const Movement single = movement_of(open().executor->training().graph, true);
  const auto line = [](const char* name, double before, double now) {
    const auto text = [](double bytes) { return bytes_text(static_cast<size_t>(bytes)); };
    fmt::print("  {:<40} {:>10}  {:>10}  {:>+6.1f}%\n", name, text(before), text(now),
               before > 0 ? 100 * (now / before - 1) : 0.0);
  };
  fmt::print("bytes that a micro-batch and an update move, at least\n  {:<40} {:>10}  {:>10}\n", "",
             "op by op", "this plan");
  for (size_t kind = 0; kind < kKinds.size(); ++kind) {
    line(kKinds[kind], single.moved[kind], fused.moved[kind]);
  }
  line("in all", single.total(), fused.total());
  if (single.blocks > 0)
    line("forward and backward of repeated blocks", single.blocks, fused.blocks);
  fmt::print(
      "  if every value of this plan were written once and read once: {}, {:.0f} % of what it "
      "moves\n",
      bytes_text(static_cast<size_t>(fused.least)), 100 * fused.least / fused.total());
}

}  // namespace dltrain

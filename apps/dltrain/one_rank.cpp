#include "dltrain/one_rank.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "ops/attention.h"
#include "passes/context_cut.h"

namespace dltrain {
namespace {

// Adds what context and expert parallelism depend on.
void measure_axes(const Graph& graph, OneRank& out) {
  bool whole = false;  // no rank can take a part of a text
  double parameters = 0, of_experts = 0;
  for (const GraphValue& value : graph.values) {
    if (value.role == Role::parameter) {
      parameters += static_cast<double>(value.spec.shape.elements());
    }
  }
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::forward) continue;
    const std::string_view op = node.op->name;
    const auto spec = [&](size_t input) { return graph.value(node.inputs[input]).spec; };
    if (op == "attention") {
      const AttentionSizes sizes = attention_sizes(op, graph.input_specs(node), node.attributes);
      out.keys += static_cast<double>(2 * sizes.keys * sizes.kv_heads * sizes.head_dim) *
                  static_cast<double>(dtype_size(spec(0).dtype));
    } else if (op == "embedding" && spec(0).shape.rank() == 2) {
      if (graph.value(node.inputs[0]).role == Role::input) out.tokens = spec(0).shape[1];
    } else if (op == "top_k_routing") {
      out.experts = std::gcd(out.experts, spec(0).shape[-1]);
    } else if (op == "dispatch_tokens") {
      out.rows += static_cast<double>(graph.value(node.outputs[0]).spec.bytes());
    } else if (op == "grouped_matmul") {
      of_experts += static_cast<double>(spec(1).shape.elements());
    }
    whole |= reads_tokens_in_order(node) || node.attributes.boolean("documents");
  }
  out.of_experts = of_experts / parameters;
  if (out.keys == 0 || whole) out.tokens = 0;
}

}  // namespace

double OneRank::slowest_stage(int64_t stages) const {
  if (stages == 1) return 1;
  double slowest = static_cast<double>(blocks) + outside;
  const double average = slowest / static_cast<double>(stages);
  for (int64_t last = 0; last <= blocks / stages; ++last) {
    const auto others = static_cast<double>((blocks - last + stages - 2) / (stages - 1));
    slowest = std::min(slowest, std::max(others, static_cast<double>(last) + outside));
  }
  return slowest / average;
}

std::set<std::string_view> layers_of_blocks(const Graph& graph) {
  std::set<std::string_view> out;
  for (const Node& node : graph.nodes) {
    if (node.block >= 0) out.insert(node.layer);
  }
  return out;
}

OneRank measure_one_rank(const Session& session) {
  const PlanReport report = session.executor->report();
  OneRank out;
  for (const auto& [role, bytes] : report.state_bytes) {
    double& sum = role == rules_of(Role::gradient).name ? out.gradients
                  : role == rules_of(Role::moment).name ? out.moments
                                                        : out.replicated;
    sum += static_cast<double>(bytes);
  }
  out.gradients = std::max(out.gradients, static_cast<double>(report.gradient_bytes));
  out.activations = static_cast<double>(report.work_bytes);
  const Graph& graph = session.executor->training().graph;
  std::map<size_t, int> sizes;  // the size of most activations of the forward
  std::set<int> blocks;
  std::set<std::string> layers;
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::forward) continue;
    if (node.block >= 0) blocks.insert(node.block);
    layers.insert(node.layer);
    for (ValueId id : node.outputs) ++sizes[graph.value(id).spec.bytes()];
  }
  const auto most = std::ranges::max_element(sizes, {}, [](const auto& s) { return s.second; });
  out.residual = static_cast<double>(most->first);
  out.layers = std::ssize(layers);
  out.blocks = blocks.empty() ? std::ssize(layers) : std::ssize(blocks);
  measure_axes(graph, out);
  return out;
}

}  // namespace dltrain

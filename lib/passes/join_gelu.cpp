#include "passes/fuse.h"

namespace dltrain {
namespace {

bool may_end_with_gelu(const Graph& graph, const Node& product, const Node& gelu, ValueId between) {
  const TensorSpec& spec = graph.value(between).spec;
  const Attributes& a = product.attributes;
  const bool plain = product.op->name == "matmul" && !a.boolean("transpose_a") &&
                     !a.boolean("independent_rows") && a.text("activation").empty();
  return plain && is_low_precision(spec.dtype) && spec == graph.value(gelu.outputs[0]).spec &&
         graph.value(product.inputs[0]).spec.dtype == spec.dtype &&
         graph.value(between).role == Role::activation &&
         graph.value(gelu.outputs[0]).role == Role::activation && product.phase == gelu.phase;
}

}  // namespace

void join_gelu(Graph& graph) {
  const std::vector<int> uses = graph.count_uses();
  std::vector<bool> gone(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& gelu = graph.nodes[i];
    const bool backward = gelu.op->name == "gelu_tanh_backward";
    if (!backward && gelu.op->name != "gelu_tanh") continue;
    const ValueId between = gelu.inputs[backward ? 1 : 0];
    if (graph.value(between).producer < 0) continue;
    Node& product = graph.nodes[static_cast<size_t>(graph.value(between).producer)];
    if (!may_end_with_gelu(graph, product, gelu, between)) continue;
    if (backward && (uses[static_cast<size_t>(between)] != 1 || product.inputs.size() != 2)) {
      continue;
    }
    if (backward) {
      product.op = find_op("matmul_gelu_backward");
      product.inputs.push_back(gelu.inputs[0]);
      product.outputs = gelu.outputs;
    } else {
      product.op = find_op("matmul_gelu");
      product.outputs = {gelu.outputs[0], between};
    }
    gone[i] = true;
  }
  graph.remove_nodes(gone);
}

}  // namespace dltrain

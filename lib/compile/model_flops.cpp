#include "compile/model_flops.h"

#include "ops/rules.h"

namespace dltrain {

double model_flops(const Graph& graph) {
  double sum = 0;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::update || !is_product(*node.op)) continue;
    // The backward of attention makes five products of the size of the forward's two, one of which
    // recomputes a product of the forward.
    const double share = node.op->name == "attention_backward" ? 0.8 : 1;
    sum += share * graph.cost(node).flops;
  }
  return sum;
}

}  // namespace dltrain

#include "passes/tf32.h"

#include "ops/rules.h"

namespace dltrain {

bool mark_tf32(Graph& graph, const PrecisionConfig& precision) {
  if (!precision.any_tf32()) return false;
  bool any = false;
  for (Node& node : graph.nodes) {
    if (!is_product(*node.op) || graph.value(node.inputs[0]).spec.dtype != DType::f32 ||
        node.attributes.boolean("full_precision") || !precision.computes_tf32(node.layer)) {
      continue;
    }
    node.attributes.set("math", std::string("tf32"));
    any = true;
  }
  return any;
}

}  // namespace dltrain

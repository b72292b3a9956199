#include "passes/tf32.h"

#include <algorithm>
#include <array>

namespace dltrain {
namespace {

constexpr std::array<std::string_view, 12> kProducts{"matmul",
                                                     "conv2d",
                                                     "conv2d_backward_input",
                                                     "conv2d_backward_weight",
                                                     "grouped_matmul",
                                                     "grouped_matmul_backward_weight",
                                                     "attention",
                                                     "attention_backward",
                                                     "recurrent",
                                                     "recurrent_backward",
                                                     "recurrent_network",
                                                     "recurrent_network_backward"};

}  // namespace

bool mark_tf32(Graph& graph, const PrecisionConfig& precision) {
  if (!precision.any_tf32()) return false;
  bool any = false;
  for (Node& node : graph.nodes) {
    if (std::ranges::find(kProducts, node.op->name) == kProducts.end() ||
        graph.value(node.inputs[0]).spec.dtype != DType::f32 ||
        node.attributes.boolean("full_precision") || !precision.computes_tf32(node.layer)) {
      continue;
    }
    node.attributes.set("math", std::string("tf32"));
    any = true;
  }
  return any;
}

}  // namespace dltrain

#include "compile/model_flops.h"

#include <array>
#include <string_view>

namespace dltrain {
namespace {

struct Share {
  std::string_view op;
  double share;  // of the op's cost
};

// The backward of attention makes five products of the size of the forward's two, one of which
// recomputes a product of the forward.
constexpr std::array kProducts{Share{"matmul", 1},
                               Share{"conv2d", 1},
                               Share{"conv2d_backward_input", 1},
                               Share{"conv2d_backward_weight", 1},
                               Share{"attention", 1},
                               Share{"attention_backward", 0.8},
                               Share{"grouped_matmul", 1},
                               Share{"grouped_matmul_backward_weight", 1},
                               Share{"recurrent", 1},
                               Share{"recurrent_backward", 1},
                               Share{"recurrent_network", 1},
                               Share{"recurrent_network_backward", 1}};

}  // namespace

double model_flops(const Graph& graph) {
  double sum = 0;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::update) continue;
    for (const Share& product : kProducts) {
      if (product.op != node.op->name) continue;
      sum += product.share *
             op_cost(*node.op, graph.input_specs(node), graph.output_specs(node), node.attributes)
                 .flops;
    }
  }
  return sum;
}

}  // namespace dltrain

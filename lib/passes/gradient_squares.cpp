#include "passes/gradient_squares.h"

#include <map>
#include <utility>

#include "graph/builder.h"
#include "passes/verify_pass.h"

namespace dltrain {

void emit_gradient_squares(Graph& graph, const std::vector<ParameterGradient>& gradients,
                           const std::string& name) {
  std::map<int, std::vector<ValueId>> complete;  // by the last writer
  for (const ParameterGradient& g : gradients) {
    complete[graph.value(g.gradient).producer].push_back(g.gradient);
  }
  const std::vector<Node> old = std::exchange(graph.nodes, {});
  GraphBuilder builder(graph);
  builder.set_phase(Phase::backward);
  builder.set_layer("gradient noise");
  ValueId sum = kNoValue;
  for (size_t i = 0; i < old.size(); ++i) {
    graph.nodes.push_back(old[i]);
    const auto here = complete.find(static_cast<int>(i));
    if (here == complete.end()) continue;
    builder.set_chunk(old[i].chunk);
    const ValueId squares = builder.emit1("sum_of_squares", here->second);
    sum = sum == kNoValue ? builder.accumulate(squares, name, Role::metric)
                          : builder.accumulate_onto(squares, sum);
  }
  graph.update_producers();
  verify_pass(graph);
}

}  // namespace dltrain

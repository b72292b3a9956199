#include "passes/dead_code.h"

#include "catch.h"
#include "graph/builder.h"
#include "state_spec.h"

namespace dltrain {
namespace {

Graph example_dead_code() {
  Graph graph;
  GraphBuilder b(graph);
  const TensorSpec spec{Shape{4}, DType::f32};
  const ValueId x = b.add_value("x", spec, Role::input);
  const ValueId w = b.add_value("w", spec, Role::parameter);
  const ValueId product = b.emit1("mul", {x, w});
  b.emit1("exp", {b.emit1("sqrt", {product})});  // nobody reads the end of this chain
  b.emit1("reshape", {w}, {{"shape", std::vector<int64_t>{2, 2}}});  // an unread view of state
  b.accumulate(b.emit1("reduce", {product}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0}}}),
               "sum", Role::metric);
  b.set_phase(Phase::update);
  b.emit1("gradient_norm", {b.step_state(), w});  // has an effect, though nobody reads it
  return graph;
}

TEST_CASE("dead code elimination removes what nobody reads, and keeps state, sums and effects") {
  const Graph before = example_dead_code();
  CHECK(print_graph(before) ==
        "forward:\n"
        "  %2 = mul(x, w) : f32[4]\n"
        "  %3 = sqrt(%2) : f32[4]\n"
        "  %4 = exp(%3) : f32[4]\n"
        "  %5 = reshape(w) {shape=[2, 2]} : f32[2, 2]\n"
        "  sum = reduce(%2) {axes=[0], kind=sum} : f32[1]\n"
        "update:\n"
        "  %8 = gradient_norm(step_state, w) : " +
            kStateSpec + "\n");
  const Graph after = eliminate_dead_code(before);
  CHECK(print_graph(after) ==
        "forward:\n"
        "  %2 = mul(x, w) : f32[4]\n"
        "  sum = reduce(%2) {axes=[0], kind=sum} : f32[1]\n"
        "update:\n"
        "  %8 = gradient_norm(step_state, w) : " +
            kStateSpec + "\n");
  CHECK(print_graph(eliminate_dead_code(after)) == print_graph(after));
  CHECK(after.value(after.find("sum")).producer == 1);
  CHECK(after.value(3).producer == -1);
}

TEST_CASE("dead code elimination leaves a graph without dead code as it is") {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.add_value("x", {Shape{4}, DType::f32}, Role::input);
  b.accumulate(b.emit1("exp", {x}), "sum", Role::metric);
  CHECK(print_graph(eliminate_dead_code(graph)) == print_graph(graph));
  CHECK(eliminate_dead_code(Graph{}).nodes.empty());
}

}  // namespace
}  // namespace dltrain

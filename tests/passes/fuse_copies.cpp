#include "passes/fuse_copies.h"

#include "catch.h"
#include "graph/builder.h"

namespace dltrain {
namespace {

// Two parameters by AdamW, the second of which has a copy; a third that no update writes.
Graph example_fuse_copies(bool third) {
  Graph graph;
  GraphBuilder b(graph);
  const TensorSpec spec{Shape{4}, DType::f32};
  b.set_phase(Phase::update);
  const ValueId state = b.step_state();
  std::vector<ValueId> updated;
  for (const char* name : {"a", "b"}) {
    const ValueId p = b.add_value(name, spec, Role::parameter);
    updated.push_back(
        b.emit("adamw_update", {state, p, b.add_state_of(p, "gradient", spec, Role::gradient),
                                b.add_state_of(p, "m", spec, Role::moment),
                                b.add_state_of(p, "v", spec, Role::moment)})[0]);
  }
  const auto round = [&](ValueId from, const char* parameter) {
    const ValueId copy = b.add_state_of(graph.find(parameter), "low_precision",
                                        {spec.shape, DType::bf16}, Role::low_precision);
    b.emit("low_precision_update", {state, from, copy});
  };
  round(updated[1], "b");
  const ValueId c = b.add_value("c", spec, Role::parameter);
  if (third) round(c, "c");
  return graph;
}

TEST_CASE("the rounding of a parameter joins its update") {
  const Graph after = fuse_copies(example_fuse_copies(false));
  REQUIRE(after.nodes.size() == 2);
  CHECK_FALSE(after.nodes[0].attributes.boolean("copies"));  // "a" has no copy
  const Node& update = after.nodes[1];
  CHECK(update.op->name == "adamw_update");
  CHECK(update.attributes.boolean("copies"));
  REQUIRE(update.inputs.size() == 6);
  CHECK(after.value(update.inputs[5]).name == "low_precision of b");
  REQUIRE(update.outputs.size() == 4);
  CHECK(after.storage(update.outputs[3]) == after.find("low_precision of b"));
  CHECK(after.value(update.outputs[3]).producer == 1);
}

TEST_CASE("a rounding of what no update writes stays as it is") {
  const Graph after = fuse_copies(example_fuse_copies(true));
  REQUIRE(after.nodes.size() == 3);
  CHECK(after.nodes[2].op->name == "low_precision_update");
  CHECK(after.value(after.nodes[2].inputs[1]).name == "c");
  CHECK(print_graph(fuse_copies(after)) == print_graph(after));
}

}  // namespace
}  // namespace dltrain

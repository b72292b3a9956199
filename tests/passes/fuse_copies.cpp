#include "passes/fuse_copies.h"

#include "catch.h"
#include "graph/builder.h"

namespace dltrain {
namespace {

// Two parameters by one AdamW, the second of which has a copy; a third that no update writes.
Graph example_fuse_copies(bool third) {
  Graph graph;
  GraphBuilder b(graph);
  const TensorSpec spec{Shape{4}, DType::f32};
  std::vector<ValueId> p, g, m, v;
  for (const std::string name : {"a", "b"}) {
    p.push_back(b.add_value(name, spec, Role::parameter));
    g.push_back(b.add_value("gradient of " + name, spec, Role::gradient));
    m.push_back(b.add_value("m." + name, spec, Role::moment));
    v.push_back(b.add_value("v." + name, spec, Role::moment));
  }
  const ValueId c = b.add_value("c", spec, Role::parameter);
  const auto copy = [&](const std::string& name) {
    return b.add_value("low_precision of " + name, {spec.shape, DType::bf16}, Role::low_precision);
  };
  b.set_phase(Phase::update);
  const ValueId state = b.step_state();
  std::vector<ValueId> inputs{state};
  for (const auto& list : {p, g, m, v}) inputs.insert(inputs.end(), list.begin(), list.end());
  const auto updated = b.emit("adamw_update", inputs, {{"count", int64_t{2}}});
  std::vector<ValueId> parameters{updated[1]}, copies{copy("b")};
  if (third) {
    parameters.push_back(c);
    copies.push_back(copy("c"));
  }
  std::vector<ValueId> rounded{state};
  rounded.insert(rounded.end(), parameters.begin(), parameters.end());
  rounded.insert(rounded.end(), copies.begin(), copies.end());
  b.emit("low_precision_update", rounded, {{"count", static_cast<int64_t>(copies.size())}});
  return graph;
}

TEST_CASE("the rounding of parameters joins their update") {
  const Graph after = fuse_copies(example_fuse_copies(false));
  REQUIRE(after.nodes.size() == 1);
  const Node& update = after.nodes[0];
  CHECK(update.op->name == "adamw_update");
  CHECK(update.attributes.boolean("copies"));
  REQUIRE(update.inputs.size() == 1 + 5 * 2);
  CHECK(update.inputs[9] == kNoValue);  // "a" has no copy
  CHECK(after.value(update.inputs[10]).name == "low_precision of b");
  REQUIRE(update.outputs.size() == 7);
  CHECK(after.storage(update.outputs[6]) == after.find("low_precision of b"));
  CHECK(after.value(update.outputs[6]).producer == 0);
}

TEST_CASE("a rounding of what the update does not write stays as it is") {
  const Graph before = example_fuse_copies(true), after = fuse_copies(before);
  CHECK(after.nodes.size() == 2);
  CHECK(print_graph(after) == print_graph(before));
}

}  // namespace
}  // namespace dltrain

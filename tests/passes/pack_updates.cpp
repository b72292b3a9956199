#include "passes/pack_updates.h"

#include "catch.h"
#include "graph/builder.h"

namespace dltrain {
namespace {

// Three parameters by SGD with momentum; "b" has a decay of its own, "c" a copy.
Graph example_pack_updates() {
  Graph graph;
  GraphBuilder b(graph);
  b.set_phase(Phase::update);
  const ValueId state = b.step_state();
  std::vector<std::pair<ValueId, ValueId>> written;  // parameter and its new value
  for (const std::string name : {"a", "b", "c"}) {
    const TensorSpec spec{Shape{name == "b" ? 2 : 4}, DType::f32};
    const ValueId p = b.add_value(name, spec, Role::parameter);
    const ValueId g = b.add_state_of(p, "gradient", spec, Role::gradient);
    const ValueId m = b.add_state_of(p, "momentum", spec, Role::moment);
    std::vector<ValueId> inputs{state, p, g, m};
    Attributes attributes{{"momentum", 0.9},
                          {"lr_scale", std::vector<double>{1}},
                          {"weight_decay", std::vector<double>{name == "b" ? 0.5 : 0}}};
    if (name == "c") {
      inputs.push_back(
          b.add_state_of(p, "low_precision", {spec.shape, DType::bf16}, Role::low_precision));
      attributes.set("copies", true);
    }
    written.emplace_back(p, b.emit("sgd_update", inputs, attributes)[0]);
  }
  for (const auto& [p, now] : written) {
    b.emit("ema_update", {state, now, b.add_state_of(p, "ema", b.spec(p), Role::ema)});
  }
  return graph;
}

TEST_CASE("updates of many parameters are one call, with a group for each setting") {
  const Graph packed = pack_updates(example_pack_updates());
  CHECK(print_graph(packed) ==
        "update:\n"
        "  %4, %9, %15, %5, %10, %16, %17 = sgd_update(step_state, a, b, c, gradient of a, "
        "gradient of b, gradient of c, momentum of a, momentum of b, momentum of c, -, -, "
        "low_precision of c) {copies=true, count=3, group=[0, 1, 0], lr_scale=[1, 1], "
        "momentum=0.9, weight_decay=[0, 0.5]} : f32[4], f32[2], f32[4], f32[4], f32[2], f32[4], "
        "bf16[4]\n"
        "  %19, %21, %23 = ema_update(step_state, %4, %9, %15, ema of a, ema of b, ema of c) "
        "{count=3} : f32[4], f32[2], f32[4]\n");
  CHECK(print_graph(pack_updates(packed)) == print_graph(packed));
}

TEST_CASE("an update that reads what an earlier one of its kind leads to is a call of its own") {
  Graph graph;
  GraphBuilder b(graph);
  b.set_phase(Phase::update);
  const TensorSpec spec{Shape{4}, DType::f32};
  const ValueId p = b.add_value("p", spec, Role::parameter);
  const ValueId first = b.add_state_of(p, "ema", spec, Role::ema);
  const ValueId once = b.emit1("ema_update", {b.step_state(), p, first});
  const ValueId second = b.add_state_of(first, "ema", spec, Role::ema);
  b.emit("ema_update", {b.step_state(), once, second});
  CHECK(pack_updates(graph).nodes.size() == 2);
}

}  // namespace
}  // namespace dltrain

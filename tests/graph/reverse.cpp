#include "graph/reverse.h"

#include <cmath>

#include "catch.h"
#include "graph/builder.h"
#include "random_graph.h"
#include "run_graph.h"

namespace dltrain {
namespace {

const TensorSpec kReverseVector{Shape{3}, DType::f64};

struct Example {
  Graph graph;
  GraphBuilder b{graph};
  ValueId x = b.add_value("x", kReverseVector, Role::input);
  ValueId p = b.add_value("p", kReverseVector, Role::parameter);

  ValueId sum(ValueId value) {
    return b.emit1("reduce", {value}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0}}});
  }
  // The gradients after one forward and backward with seed 1, x = (1, 2, 3), p = (−1, 0.5, 2).
  std::vector<double> gradient(const std::string& parameter = "p") const {
    verify_graph(graph);
    GraphRun run(graph);
    run.set(x, {1, 2, 3});
    run.set(p, {-1, 0.5, 2});
    run.step_state().out.loss_scale = 1;
    run.step_state().in.inverse_valid = 1;
    run.run(Phase::forward);
    run.run(Phase::backward);
    return run.get(fmt::format("gradient of {}", parameter));
  }
};

TEST_CASE("the backward is appended op by op, and the gradient is a sum of its own") {
  Example e;
  const ValueId loss = e.sum(e.b.emit1("mul", {e.x, e.p}));
  const auto gradients = reverse(e.graph, {loss}, {e.p});
  REQUIRE(gradients.size() == 1);
  CHECK(gradients[0].parameter == e.p);
  CHECK(print_graph(e.graph) ==
        "forward:\n"
        "  %2 = mul(x, p) : f64[3]\n"
        "  %3 = reduce(%2) {axes=[0], kind=sum} : f64[1]\n"
        "backward:\n"
        "  %5 = loss_seed(step_state, %3) : f64[1]\n"
        "  %6 = broadcast(%5) {shape=[3]} : f64[3]\n"
        "  gradient of p = mul(%6, x) : f64[3]\n");
  CHECK(e.gradient() == std::vector<double>{1, 2, 3});
}

TEST_CASE("a value that several nodes read gets the sum of their gradients") {
  Example e;
  const ValueId shared = e.b.emit1("mul", {e.p, e.p});  // the parameter itself is read twice
  reverse(e.graph, {e.sum(e.b.emit1("add", {shared, e.b.emit1("mul", {shared, e.x})}))}, {e.p});
  // d/dp of p²(1 + x) = 2p(1 + x)
  CHECK(e.gradient() == std::vector<double>{-4, 3, 16});
}

TEST_CASE("the gradient of a parameter with several readers is one sum, to which each adds") {
  Example e;
  const ValueId product = e.b.emit1("mul", {e.p, e.x});
  const ValueId loss = e.sum(e.b.emit1("mul", {product, e.p}));  // Σ p²x
  const auto gradients = reverse(e.graph, {loss}, {e.p});
  const ValueId begun = e.graph.find("gradient of p"), whole = gradients[0].gradient;
  CHECK(begun != whole);
  CHECK(e.graph.storage(whole) == begun);
  CHECK(e.graph.continues_sum(whole));
  CHECK_FALSE(e.graph.continues_sum(begun));
  CHECK(e.graph.whole_sums()[static_cast<size_t>(begun)] == whole);
  for (const Node& node : e.graph.nodes) CHECK(node.op->name != "add");
  CHECK(e.gradient() == std::vector<double>{-2, 2, 12});

  // Over micro-steps both parts add up.
  GraphRun run(e.graph, /*several_micro_steps=*/true);
  run.set(e.p, {-1, 0.5, 2});
  run.step_state().out.loss_scale = 1;
  run.step_state().in.inverse_valid = 1;
  for (const MicroStep step : {MicroStep::first, MicroStep::middle, MicroStep::last}) {
    run.set(e.x, {1, 2, 3});
    run.run(Phase::forward, step);
    run.run(Phase::backward, step);
  }
  CHECK(run.get("gradient of p") == std::vector<double>{-6, 6, 36});
}

TEST_CASE("several losses share one backward, each with its own seed") {
  Example e;
  const ValueId product = e.b.emit1("mul", {e.p, e.x});
  const ValueId first = e.sum(product), second = e.sum(e.b.emit1("square", {product}));
  reverse(e.graph, {first, second}, {e.p});
  // x + 2px²
  CHECK(e.gradient() == std::vector<double>{-1, 6, 39});
  int seeds = 0;
  for (const Node& node : e.graph.nodes) seeds += node.op->name == "loss_seed";
  CHECK(seeds == 2);
}

TEST_CASE("parameters that no loss depends on are left out") {
  Example e;
  const ValueId unused = e.b.add_value("unused", kReverseVector, Role::parameter);
  const ValueId beside = e.b.add_value("beside", kReverseVector, Role::parameter);
  e.b.emit1("exp", {beside});  // read, but not by the loss
  const ValueId loss = e.sum(e.b.emit1("mul", {e.x, e.p}));
  const auto gradients = reverse(e.graph, {loss}, {unused, e.p, beside});
  REQUIRE(gradients.size() == 1);
  CHECK(gradients[0].parameter == e.p);
  CHECK(e.graph.find("gradient of unused") == kNoValue);
}

TEST_CASE("nothing flows into what is not wanted") {
  Example e;
  const ValueId q = e.b.add_value("q", kReverseVector, Role::parameter);
  const ValueId loss = e.sum(e.b.emit1("mul", {e.b.emit1("exp", {q}), e.p}));
  reverse(e.graph, {loss}, {e.p});
  for (const Node& node : e.graph.nodes) {
    if (node.phase == Phase::backward) CHECK(node.inputs[0] != q);
  }
  CHECK(e.graph.find("gradient of q") == kNoValue);
}

// add passes dy on unchanged: to two parameters, and to a parameter and a value that goes on.
TEST_CASE("a gradient that is also somebody else's is copied before it becomes a sum") {
  Example e;
  const ValueId q = e.b.add_value("q", kReverseVector, Role::parameter);
  const ValueId both = e.b.emit1("add", {e.p, q});
  reverse(e.graph, {e.sum(e.b.emit1("mul", {both, e.x}))}, {e.p, q});
  CHECK(e.gradient("p") == std::vector<double>{1, 2, 3});
  CHECK(e.gradient("q") == std::vector<double>{1, 2, 3});

  Example chain;
  const ValueId inner = chain.b.emit1("mul", {chain.p, chain.x});
  const ValueId r = chain.b.add_value("r", kReverseVector, Role::parameter);
  reverse(chain.graph, {chain.sum(chain.b.emit1("add", {inner, r}))}, {chain.p, r});
  CHECK(chain.gradient("p") == std::vector<double>{1, 2, 3});
  CHECK(chain.gradient("r") == std::vector<double>{1, 1, 1});

  Example view;  // the gradient of a reshape is a view of dy
  const ValueId flat = view.b.emit1("reshape", {view.p}, {{"shape", std::vector<int64_t>{3, 1}}});
  const ValueId back = view.b.emit1("reshape", {flat}, {{"shape", std::vector<int64_t>{3}}});
  reverse(view.graph, {view.sum(view.b.emit1("add", {back, view.p}))}, {view.p});
  CHECK(view.gradient() == std::vector<double>{2, 2, 2});

  Example early;  // what is added to the copy was made before it
  const ValueId tripled = early.b.emit1("affine", {early.p}, {{"scale", 3.0}, {"shift", 0.0}});
  const ValueId rest = early.b.emit1("sub", {early.p, tripled});
  reverse(early.graph, {early.sum(early.b.emit1("mul", {rest, early.x}))}, {early.p});
  CHECK(early.gradient() == std::vector<double>{-2, -4, -6});
}

TEST_CASE("gradients come in the order in which the backward completes them") {
  Example e;
  const ValueId q = e.b.add_value("q", kReverseVector, Role::parameter);
  const ValueId first = e.b.emit1("mul", {e.x, e.p});
  const ValueId second = e.b.emit1("mul", {first, q});
  const auto gradients = reverse(e.graph, {e.sum(second)}, {e.p, q});
  REQUIRE(gradients.size() == 2);
  CHECK(gradients[0].parameter == q);
  CHECK(gradients[1].parameter == e.p);
  CHECK(e.graph.value(gradients[0].gradient).producer <
        e.graph.value(gradients[1].gradient).producer);
}

// Central differences in f64 at a few elements of every parameter.
TEST_CASE("gradients of random graphs agree with finite differences") {
  int checked = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    RandomGraph random(seed, DType::f64);
    Graph graph = random.graph();
    const auto gradients = reverse(graph, random.losses(), random.parameters());
    GraphRun run(graph);
    run.fill(seed + 100);
    const std::vector<double> x = run.get("x");
    run.step_state().out.loss_scale = 1;
    run.step_state().in.inverse_valid = 1;
    run.run(Phase::forward);
    run.run(Phase::backward);
    for (const auto& g : gradients) {
      const std::vector<double> expected = run.get(g.gradient);
      const std::vector<double> at = run.get(g.parameter);
      for (size_t i = seed % 5; i < at.size(); i += 5) {
        const auto loss = [&](double step) {
          std::vector<double> moved = at;
          moved[i] += step;
          run.set(g.parameter, moved);
          run.set("x", x);  // its slot is free for other values once it has been read
          run.run(Phase::forward);
          double sum = 0;
          for (ValueId id : graph.with_role(Role::metric)) sum += run.get(id)[0];
          return sum;
        };
        const double h = 1e-6, difference = (loss(h) - loss(-h)) / (2 * h);
        // ReLU's kink makes a difference only where a draw falls within h of it.
        CHECK(std::abs(difference - expected[i]) <= 1e-6 * (1 + std::abs(difference)));
        ++checked;
      }
      run.set(g.parameter, at);
    }
  }
  CHECK(checked > 200);
}

}  // namespace
}  // namespace dltrain

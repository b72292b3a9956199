#include "graph/builder.h"

#include "base/error.h"
#include "catch.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

const TensorSpec kBuilderVector{Shape{4}, DType::f32};

TEST_CASE("a shape that does not fit is reported with the path of the layer") {
  Graph graph;
  GraphBuilder b(graph);
  b.set_layer("layers.3");
  const ValueId x = b.add_value("x", {Shape{2, 5}, DType::f32}, Role::input);
  const ValueId w = b.add_value("w", {Shape{3, 4}, DType::f32}, Role::parameter);
  try {
    b.emit("matmul", {x, w});
    FAIL("it was accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::usage);
    CHECK(std::string(error.what()) == "layers.3: matmul: inner extents differ: [2, 5] · [3, 4]");
  }
}

TEST_CASE("a sum takes over the node that makes it, or copies what others hold") {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.add_value("x", kBuilderVector, Role::input);
  const ValueId own = b.emit1("exp", {x});
  CHECK(b.accumulate(own, "own", Role::metric) == own);

  const ValueId read = b.emit1("exp", {x});
  b.emit1("sqrt", {read});
  CHECK(b.accumulate(read, "read", Role::metric) != read);
  CHECK(b.accumulate(x, "an input", Role::metric) != x);
  const ValueId view = b.emit1("reshape", {x}, {{"shape", std::vector<int64_t>{2, 2}}});
  CHECK(b.accumulate(view, "a view", Role::metric) != view);
  CHECK(b.reshape(view, {2, 2}) == view);
  CHECK(b.spec(b.reshape(view, {1, 4})).shape == Shape{1, 4});
  CHECK(b.accumulate(own, "again", Role::gradient) != own);
  const ValueId twin = b.emit1("exp", {x});
  b.accumulate(twin, "own", Role::metric);
  graph.update_producers();
  CHECK_THROWS_WITH(verify_graph(graph), Contains("two values are named own"));
}

TEST_CASE("the StepState is one value, made when first asked for") {
  Graph graph;
  GraphBuilder b(graph);
  CHECK(graph.step_state == kNoValue);
  const ValueId state = b.step_state();
  CHECK(b.step_state() == state);
  CHECK(graph.step_state == state);
}

TEST_CASE("an unknown op and a second value of one name are bugs") {
  Graph graph;
  GraphBuilder b(graph);
  b.add_value("x", kBuilderVector, Role::input);
  CHECK_THROWS_WITH(b.emit("no_such_op", {}), Contains("no op is named"));
  b.add_value("x", kBuilderVector, Role::input);
  CHECK_THROWS_WITH(verify_graph(graph), Contains("two values are named x"));
}

}  // namespace
}  // namespace dltrain

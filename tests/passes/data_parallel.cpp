#include "passes/data_parallel.h"

#include "catch.h"
#include "graph/builder.h"

namespace dltrain {
namespace {

// Three gradients of 16 floats (64 bytes, 256 with alignment) in the order c, b, a of production,
// a statistic and a metric from the forward, and an update that reads all of them.
Graph training_example() {
  Graph graph;
  GraphBuilder b(graph);
  const TensorSpec spec{Shape{16}, DType::f32};
  const ValueId x = b.add_value("x", spec, Role::input);
  const ValueId p = b.add_value("p", spec, Role::parameter);
  const ValueId y = b.emit1("mul", {x, p});
  const ValueId statistic = b.accumulate(b.emit1("square", {y}), "statistic", Role::statistic);
  b.accumulate(b.emit1("cast", {y}, {{"dtype", "f64"}}), "metric", Role::metric);
  b.set_phase(Phase::backward);
  std::vector<ValueId> gradients;
  for (const char* name : {"c", "b", "a"}) {
    const ValueId dy = b.emit1("exp", {y});
    gradients.push_back(b.accumulate(b.emit1("mul", {dy, x}), name, Role::gradient));
  }
  b.set_phase(Phase::update);
  const ValueId state =
      b.emit1("gradient_norm", {b.step_state(), gradients[0], gradients[1], gradients[2]});
  b.emit("sgd_update", {state, p, gradients[1]}, {{"count", int64_t{1}}});
  b.emit1("sqrt", {statistic});
  return graph;
}

TEST_CASE("data parallelism reduces full buckets as soon as their last writer has run") {
  const Graph after = data_parallel(training_example(), {.ranks = 2, .bucket_bytes = 512});
  CHECK(print_graph(after) ==
        "forward:\n"
        "  %2 = mul(x, p) : f32[16]\n"
        "  statistic = square(%2) : f32[16]\n"
        "  %15 = all_reduce_begin(statistic) {slot=0} : f32[16]  @last\n"
        "  metric = cast(%2) {dtype=f64} : f64[16]\n"
        "  %16 = all_reduce_begin(metric) {slot=1} : f64[16]  @last\n"
        "backward:\n"
        "  %5 = exp(%2) : f32[16]\n"
        "  c = mul(%5, x) : f32[16]\n"
        "  %7 = exp(%2) : f32[16]\n"
        "  b = mul(%7, x) : f32[16]\n"
        "  %17, %18 = all_reduce_begin(c, b) {slot=2} : f32[16], f32[16]  @last\n"
        "  %9 = exp(%2) : f32[16]\n"
        "  a = mul(%9, x) : f32[16]\n"
        "  %19 = all_reduce_begin(a) {slot=3} : f32[16]  @last\n"
        "update:\n"
        "  %20 = all_reduce_end(%15) {slot=0} : f32[16]\n"
        "  %21 = all_reduce_end(%16) {slot=1} : f64[16]\n"
        "  %22, %23 = all_reduce_end(%17, %18) {slot=2} : f32[16], f32[16]\n"
        "  %24 = all_reduce_end(%19) {slot=3} : f32[16]\n"
        "  %12 = gradient_norm(step_state, %22, %23, %24) : u8[88]\n"
        "  %13 = sgd_update(%12, p, %23) {count=1} : f32[16]\n"
        "  %14 = sqrt(%20) : f32[16]\n");
}

}  // namespace
}  // namespace dltrain

#include "passes/zero.h"

#include "catch.h"
#include "graph/builder.h"
#include "graph/state_layout.h"
#include "state_spec.h"

namespace dltrain {
namespace {

// y = (x · a) · b, elements of 40: two parameters, each with a gradient and a moment.
Graph training_example_zero() {
  Graph graph;
  GraphBuilder b(graph);
  const TensorSpec spec{Shape{40}, DType::f32};
  const ValueId x = b.add_value("x", spec, Role::input);
  const ValueId first = b.add_value("a", spec, Role::parameter);
  const ValueId second = b.add_value("b", spec, Role::parameter);
  const ValueId h = b.emit1("mul", {x, first});
  b.emit1("mul", {h, second});
  b.set_phase(Phase::backward);
  const ValueId db = b.accumulate(b.emit1("mul", {h, x}), "gradient of b", Role::gradient);
  const ValueId dh = b.emit1("mul", {second, x});
  const ValueId da = b.accumulate(b.emit1("mul", {dh, x}), "gradient of a", Role::gradient);
  b.set_phase(Phase::update);
  const ValueId state = b.emit1("gradient_norm", {b.step_state(), da, db});
  const ValueId ma = b.add_state_of(first, "momentum", spec, Role::moment);
  const ValueId mb = b.add_state_of(second, "momentum", spec, Role::moment);
  b.emit("sgd_update", {state, first, da, ma}, {{"momentum", 0.9}});
  b.emit("sgd_update", {state, second, db, mb}, {{"momentum", 0.9}});
  return graph;
}

// A unit for each parameter: 64 elements for 2 ranks, the second of which has 8 that count.
DataParallelOptions options(int stage, int rank = 0) {
  return {.mesh = Mesh({{mesh_axes::kShard, 2}}),
          .rank = rank,
          .zero_stage = stage,
          .bucket_bytes = 160};
}

std::string lowered(int stage) {
  Graph graph = training_example_zero();
  const auto units = find_zero_units(graph, options(stage));
  return print_graph(zero(std::move(graph), units, options(stage)));
}

TEST_CASE("stage 1 reduces gradients to parts after the last micro-step and collects parameters") {
  CHECK(lowered(1) ==
        std::string() +
            "forward:\n"
            "  %3 = mul(x, a) : f32[40]\n"
            "  %4 = mul(%3, b) : f32[40]\n"
            "backward:\n"
            "  gradient of b = mul(%3, x) : f32[40]\n"
            "  gradient of zero.1 = reduce_scatter_begin(gradient of b) {elements=32, ranks=2, "
            "slot=0} : "
            "f32[32]  @last\n"
            "  %6 = mul(b, x) : f32[40]\n"
            "  gradient of a = mul(%6, x) : f32[40]\n"
            "  gradient of zero.0 = reduce_scatter_begin(gradient of a) {elements=32, ranks=2, "
            "slot=1} : "
            "f32[32]  @last\n"
            "update:\n"
            "  %20 = reduce_scatter_end(gradient of zero.1, gradient of b) {slot=0} : f32[32]\n"
            "  %21 = reduce_scatter_end(gradient of zero.0, gradient of a) {slot=1} : f32[32]\n"
            "  %26 = sum_of_squares(%21, %20) : f64[1]  # optimizer\n"
            "  %27 = all_reduce_begin(%26) {slot=2} : f64[1]  # optimizer\n"
            "  %28 = all_reduce_end(%27) {slot=2} : f64[1]  # optimizer\n"
            "  %9 = gradient_norm_of(step_state, %28) : " +
            kStateSpec +
            "  # optimizer\n"
            "  %12, %13 = sgd_update(%9, a in zero.0, a in gradient of zero.0, momentum of a) "
            "{momentum=0.9} : f32[32], f32[32]\n"
            "  %14, %15 = sgd_update(%9, b in zero.1, b in gradient of zero.1, momentum of b) "
            "{momentum=0.9} : f32[32], f32[32]\n"
            "  %30 = all_gather_begin(zero.0, a) {slot=3} : f32[40]  # optimizer\n"
            "  %31 = all_gather_begin(zero.1, b) {slot=4} : f32[40]  # optimizer\n"
            "  %32 = all_gather_end(%30) {slot=3} : f32[40]  # optimizer\n"
            "  %33 = all_gather_end(%31) {slot=4} : f32[40]  # optimizer\n");
}

TEST_CASE("stage 2 reduces gradients to parts in every micro-step") {
  CHECK(lowered(2) ==
        std::string() +
            "forward:\n"
            "  %3 = mul(x, a) : f32[40]\n"
            "  %4 = mul(%3, b) : f32[40]\n"
            "backward:\n"
            "  gradient of b = mul(%3, x) : f32[40]\n"
            "  %18 = reduce_scatter_begin(gradient of b) {elements=32, ranks=2, slot=0} : f32[32]\n"
            "  %6 = mul(b, x) : f32[40]\n"
            "  gradient of a = mul(%6, x) : f32[40]\n"
            "  %19 = reduce_scatter_end(%18, gradient of b) {slot=0} : f32[32]\n"
            "  gradient of zero.1 = identity(%19) : f32[32]\n"
            "  %21 = reduce_scatter_begin(gradient of a) {elements=32, ranks=2, slot=1} : f32[32]\n"
            "  %22 = reduce_scatter_end(%21, gradient of a) {slot=1} : f32[32]\n"
            "  gradient of zero.0 = identity(%22) : f32[32]\n"
            "update:\n"
            "  %28 = sum_of_squares(gradient of zero.0, gradient of zero.1) : f64[1]  # optimizer\n"
            "  %29 = all_reduce_begin(%28) {slot=2} : f64[1]  # optimizer\n"
            "  %30 = all_reduce_end(%29) {slot=2} : f64[1]  # optimizer\n"
            "  %9 = gradient_norm_of(step_state, %30) : " +
            kStateSpec +
            "  # optimizer\n"
            "  %12, %13 = sgd_update(%9, a in zero.0, a in gradient of zero.0, momentum of a) "
            "{momentum=0.9} : f32[32], f32[32]\n"
            "  %14, %15 = sgd_update(%9, b in zero.1, b in gradient of zero.1, momentum of b) "
            "{momentum=0.9} : f32[32], f32[32]\n"
            "  %32 = all_gather_begin(zero.0, a) {slot=3} : f32[40]  # optimizer\n"
            "  %33 = all_gather_begin(zero.1, b) {slot=4} : f32[40]  # optimizer\n"
            "  %34 = all_gather_end(%32) {slot=3} : f32[40]  # optimizer\n"
            "  %35 = all_gather_end(%33) {slot=4} : f32[40]  # optimizer\n");
}

TEST_CASE("stage 3 gathers parameters a unit ahead, in forward and backward") {
  CHECK(lowered(3) ==
        std::string() +
            "forward:\n"
            "  %30 = all_gather_begin(zero.0) {shapes=[1, 40], slot=3} : f32[40]\n"
            "  a = all_gather_end(%30) {slot=3} : f32[40]\n"
            "  %32 = all_gather_begin(zero.1) {shapes=[1, 40], slot=4} : f32[40]\n"
            "  %3 = mul(x, a) : f32[40]\n"
            "  b = all_gather_end(%32) {slot=4} : f32[40]\n"
            "  %4 = mul(%3, b) : f32[40]\n"
            "backward:\n"
            "  %34 = all_gather_begin(zero.1) {shapes=[1, 40], slot=5} : f32[40]\n"
            "  gradient of b = mul(%3, x) : f32[40]\n"
            "  %18 = reduce_scatter_begin(gradient of b) {elements=32, ranks=2, slot=0} : f32[32]\n"
            "  b = all_gather_end(%34) {slot=5} : f32[40]\n"
            "  %6 = mul(b, x) : f32[40]\n"
            "  gradient of a = mul(%6, x) : f32[40]\n"
            "  %19 = reduce_scatter_end(%18, gradient of b) {slot=0} : f32[32]\n"
            "  gradient of zero.1 = identity(%19) : f32[32]\n"
            "  %21 = reduce_scatter_begin(gradient of a) {elements=32, ranks=2, slot=1} : f32[32]\n"
            "  %22 = reduce_scatter_end(%21, gradient of a) {slot=1} : f32[32]\n"
            "  gradient of zero.0 = identity(%22) : f32[32]\n"
            "update:\n"
            "  %26 = sum_of_squares(gradient of zero.0, gradient of zero.1) : f64[1]  # optimizer\n"
            "  %27 = all_reduce_begin(%26) {slot=2} : f64[1]  # optimizer\n"
            "  %28 = all_reduce_end(%27) {slot=2} : f64[1]  # optimizer\n"
            "  %9 = gradient_norm_of(step_state, %28) : " +
            kStateSpec +
            "  # optimizer\n"
            "  %12, %13 = sgd_update(%9, a, a in gradient of zero.0, momentum of a) "
            "{momentum=0.9} : f32[32], f32[32]\n"
            "  %14, %15 = sgd_update(%9, b, b in gradient of zero.1, momentum of b) "
            "{momentum=0.9} : f32[32], f32[32]\n");
}

// Two groups of two ranks.
std::string lowered_in_groups(int stage, DType reduce_dtype = DType::f32) {
  Graph graph = training_example_zero();
  DataParallelOptions hybrid = options(stage);
  hybrid.mesh = Mesh({{mesh_axes::kReplica, 2}, {mesh_axes::kShard, 2}});
  hybrid.reduce_dtype = reduce_dtype;
  const auto units = find_zero_units(graph, hybrid);
  return print_graph(zero(std::move(graph), units, hybrid));
}

// Whether the lines stand in the text in this order.
bool in_order(const std::string& text, const std::vector<std::string>& lines) {
  size_t at = 0;
  for (const std::string& line : lines) {
    at = text.find(line, at);
    if (at == text.npos) {
      UNSCOPED_INFO("missing or out of order: " << line);
      return false;
    }
    at += line.size();
  }
  return true;
}

TEST_CASE("in groups, parts of gradients are summed between groups after the last micro-step") {
  CHECK(
      lowered_in_groups(2) ==
      std::string() +
          "forward:\n"
          "  %3 = mul(x, a) : f32[40]\n"
          "  %4 = mul(%3, b) : f32[40]\n"
          "backward:\n"
          "  gradient of b = mul(%3, x) : f32[40]\n"
          "  %18 = reduce_scatter_begin(gradient of b) {elements=32, over=shard, ranks=2, slot=0} "
          ": "
          "f32[32]\n"
          "  %6 = mul(b, x) : f32[40]\n"
          "  gradient of a = mul(%6, x) : f32[40]\n"
          "  %19 = reduce_scatter_end(%18, gradient of b) {over=shard, slot=0} : f32[32]\n"
          "  gradient of zero.1 = identity(%19) : f32[32]\n"
          "  %21 = all_reduce_begin(gradient of zero.1) {over=replica, slot=1} : f32[32]  @last\n"
          "  %22 = reduce_scatter_begin(gradient of a) {elements=32, over=shard, ranks=2, slot=2} "
          ": "
          "f32[32]\n"
          "  %23 = reduce_scatter_end(%22, gradient of a) {over=shard, slot=2} : f32[32]\n"
          "  gradient of zero.0 = identity(%23) : f32[32]\n"
          "  %25 = all_reduce_begin(gradient of zero.0) {over=replica, slot=3} : f32[32]  @last\n"
          "update:\n"
          "  %26 = all_reduce_end(%21) {over=replica, slot=1} : f32[32]\n"
          "  %27 = all_reduce_end(%25) {over=replica, slot=3} : f32[32]\n"
          "  %32 = sum_of_squares(%27, %26) : f64[1]  # optimizer\n"
          "  %33 = all_reduce_begin(%32) {over=shard, slot=4} : f64[1]  # optimizer\n"
          "  %34 = all_reduce_end(%33) {over=shard, slot=4} : f64[1]  # optimizer\n"
          "  %9 = gradient_norm_of(step_state, %34) : " +
          kStateSpec +
          "  # optimizer\n"
          "  %12, %13 = sgd_update(%9, a in zero.0, a in gradient of zero.0, momentum of a) "
          "{momentum=0.9} : f32[32], f32[32]\n"
          "  %14, %15 = sgd_update(%9, b in zero.1, b in gradient of zero.1, momentum of b) "
          "{momentum=0.9} : f32[32], f32[32]\n"
          "  %36 = all_gather_begin(zero.0, a) {over=shard, slot=5} : f32[40]  # optimizer\n"
          "  %37 = all_gather_begin(zero.1, b) {over=shard, slot=6} : f32[40]  # optimizer\n"
          "  %38 = all_gather_end(%36) {over=shard, slot=5} : f32[40]  # optimizer\n"
          "  %39 = all_gather_end(%37) {over=shard, slot=6} : f32[40]  # optimizer\n");
}

TEST_CASE("in groups, a part leaves while the next unit is computed, in what gradients travel") {
  CHECK(in_order(lowered_in_groups(1, DType::bf16),
                 {"%18 = cast(gradient of b) {dtype=bf16} : bf16[40]  @last",
                  "%19 = reduce_scatter_begin(%18) {elements=32, over=shard, ranks=2, slot=0}",
                  "gradient of a = mul(%6, x)",
                  "%20 = reduce_scatter_end(%19, %18) {over=shard, slot=0} : bf16[32]  @last",
                  "%21 = all_reduce_begin(%20) {over=replica, slot=1} : bf16[32]  @last",
                  "%22 = cast(gradient of a) {dtype=bf16} : bf16[40]  @last",
                  "%23 = reduce_scatter_begin(%22) {elements=32, over=shard, ranks=2, slot=2}",
                  "update:", "%24 = reduce_scatter_end(%23, %22) {over=shard, slot=2} : bf16[32]\n",
                  "%25 = all_reduce_begin(%24) {over=replica, slot=3} : bf16[32]\n",
                  "%26 = all_reduce_end(%21) {over=replica, slot=1}",
                  "gradient of zero.1 = cast(%26) {dtype=f32}",
                  "sum_of_squares(gradient of zero.0, gradient of zero.1)"}));
  // Parts that add up over micro-steps in f32 are rounded again for the way between groups.
  CHECK(in_order(lowered_in_groups(3, DType::bf16),
                 {"all_gather_begin(zero.0) {over=shard, shapes=[1, 40], slot=5}", "backward:",
                  "%20 = reduce_scatter_end(%19, %18) {over=shard, slot=0} : bf16[32]\n",
                  "gradient of zero.1 = cast(%20) {dtype=f32} : f32[32]\n",
                  "%22 = cast(gradient of zero.1) {dtype=bf16} : bf16[32]  @last",
                  "%23 = all_reduce_begin(%22) {over=replica, slot=1} : bf16[32]  @last",
                  "update:", "%30 = all_reduce_end(%23) {over=replica, slot=1} : bf16[32]",
                  "reduced.gradient of zero.1 = cast(%30) {dtype=f32}",
                  "sum_of_squares(reduced.gradient of zero.0, reduced.gradient of zero.1)"}));
}

TEST_CASE("units hold parameters that are read alike, and every element lies on one rank") {
  Graph graph = training_example_zero();
  DataParallelOptions joined = options(3, 1);
  joined.bucket_bytes = 1 << 20;
  const auto units = find_zero_units(graph, joined);
  REQUIRE(units.size() == 1);
  REQUIRE(units[0].members.size() == 2);
  CHECK(units[0].members[1].first == 64);
  CHECK(units[0].elements == 64);  // of 104
  for (int rank : {0, 1}) {
    joined.rank = rank;
    const Graph cut = zero(graph, units, joined);
    StateLayout layout;
    layout.add(cut);
    CHECK(layout.has_shards());
    for (const char* name : {"a", "b", "momentum of a", "momentum of b"}) {
      const StateTensor* tensor = layout.find(name);
      REQUIRE(tensor != nullptr);
      REQUIRE(tensor->shard);
      const bool here = name[std::string(name).size() - 1] == (rank == 0 ? 'a' : 'b');
      CHECK(tensor->shard->range().count == (here ? 40 : 0));
    }
    CHECK(layout.bytes(Role::moment) == 40 * sizeof(float));
    CHECK(layout.bytes(Role::parameter) == 40 * sizeof(float));
  }
}

TEST_CASE("one rank, or stage 0, leaves a graph as it is") {
  const Graph graph = training_example_zero();
  CHECK(print_graph(zero(graph, {}, {.zero_stage = 3})) == print_graph(graph));
  CHECK(print_graph(zero(graph, {}, {.mesh = Mesh({{mesh_axes::kShard, 4}})})) ==
        print_graph(graph));
}

}  // namespace
}  // namespace dltrain

#include "graph/program.h"

#include <cmath>

#include "base/error.h"
#include "catch.h"
#include "comm/world.h"
#include "examples.h"
#include "random_graph.h"
#include "run_graph.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

using Numbers = std::vector<double>;

// The reference engine with kernels that only overwrite, but for identity: what a backend of vendor
// kernels may look like.
const Engine& overwriting_engine() {
  static const std::vector<KernelRow> rows = [] {
    const Engine& reference = reference_engine();
    std::vector<KernelRow> out(reference.kernels, reference.kernels + reference.kernel_count);
    for (KernelRow& row : out) row.accumulates = row.op == "identity";
    return out;
  }();
  static const Engine engine = [] {
    Engine e = reference_engine();
    e.name = "overwriting";
    e.kernels = rows.data();
    e.kernel_count = rows.size();
    return e;
  }();
  return engine;
}

// Names of the ops of a segment: "+" where the call adds to its output.
std::string calls_of(const Program& program, Phase phase, MicroStep variant) {
  std::string out;
  for (size_t index : program.segment(phase, variant)) {
    const Call& call = program.calls()[index];
    const Node& node = program.graph().nodes[call.node];
    out += out.empty() ? "" : " ";
    out += call.adds_temporary ? "add" : std::string(node.op->name);
    out += call.accumulate ? "+" : "";
    out += call.temporary && !call.adds_temporary ? ">" : "";
  }
  return out;
}

// loss = Σ exp(x) as a sum over micro-steps, an op that runs once a step, and an update.
Graph sum_example() {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.add_value("x", {Shape{2}, DType::f64}, Role::input);
  const ValueId y = b.emit1("square", {x});
  const ValueId sum =
      b.accumulate(b.emit1("reduce", {y}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0}}}),
                   "sum", Role::metric);
  const ValueId begun = b.emit1("all_reduce_begin", {sum}, {{"slot", int64_t{0}}});
  graph.nodes.back().once_per_step = true;
  b.set_phase(Phase::update);
  b.emit1("sqrt", {b.emit1("all_reduce_end", {begun}, {{"slot", int64_t{0}}})});
  return graph;
}

Collectives* one_rank() {
  static const auto device = reference_engine().open(0);
  static const auto group = make_single(*device);
  return group.get();
}

TEST_CASE("segments hold what each kind of micro-step needs") {
  GraphRun run(sum_example(), true, reference_engine(), one_rank());
  const Program& program = run.program();
  CHECK(calls_of(program, Phase::forward, MicroStep::first) == "square reduce");
  CHECK(calls_of(program, Phase::forward, MicroStep::middle) == "square reduce+");
  CHECK(calls_of(program, Phase::forward, MicroStep::last) == "square reduce+ all_reduce_begin");
  CHECK(calls_of(program, Phase::forward, MicroStep::only) == "square reduce all_reduce_begin");
  CHECK(calls_of(program, Phase::backward, MicroStep::only) == "");
  CHECK(calls_of(program, Phase::update, MicroStep::only) == "all_reduce_end sqrt");
}

Numbers sum_over_three(const Engine& engine) {
  GraphRun run(sum_example(), true, engine, one_rank());
  for (int step = 0; step < 2; ++step) {  // the second step starts from zero again
    for (int64_t i = 0; i < 3; ++i) {
      run.set("x", {static_cast<double>(i), 1.0 + step});
      run.run(Phase::forward, micro_step_of(i, 3));
    }
  }
  return run.get("sum");
}

TEST_CASE("the first micro-step overwrites the sums and later ones add to them") {
  CHECK(sum_over_three(reference_engine()) == Numbers{0 + 1 + 4 + 3 * 4});
}

TEST_CASE("a kernel that cannot add writes beside the sum, and is added to it") {
  GraphRun run(sum_example(), true, overwriting_engine(), one_rank());
  CHECK(calls_of(run.program(), Phase::forward, MicroStep::first) == "square reduce");
  CHECK(calls_of(run.program(), Phase::forward, MicroStep::middle) == "square reduce> add+");
  CHECK(sum_over_three(overwriting_engine()) == Numbers{0 + 1 + 4 + 3 * 4});
}

TEST_CASE("a plan says which variant of each op its calls have") {
  std::vector<KernelRow> rows(reference_engine().kernels,
                              reference_engine().kernels + reference_engine().kernel_count);
  for (KernelRow& row : rows) row.variant = row.op == "reduce" ? "wide" : "plain";
  Engine engine = overwriting_engine();
  engine.kernels = rows.data();
  const auto variants = GraphRun(sum_example(), true, engine, one_rank()).program().variants();
  CHECK(variants.at({"square", "plain"}) == 1);
  CHECK(variants.at({"reduce", "wide"}) == 2);  // overwriting and adding
  CHECK(variants.count({"reduce", "plain"}) == 0);
}

// Two inputs, ReLU layer of two, two classes, numbers small enough to do by hand:
//   both samples end in equal logits, so softmax is ½ and dlogits = ½·(∓½, ±½).
void set_hand_example(GraphRun& run) {
  run.set("w0", {1, 0, 0, -1});
  run.set("b0", {0, 0});
  run.set("w1", {1, -1, -1, 1});
  run.set("b1", {0, 0});
  StepInputs& in = run.step_state().in;
  in = {.seed = 0,
        .step = 0,
        .sample_offset = 0,
        .learning_rate = 0.1,
        .inverse_valid = 0.5,
        .max_grad_norm = 0};
  run.step_state().out.loss_scale = 1;
}

void check_close(const Numbers& found, const Numbers& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i] == Approx(expected[i]).epsilon(1e-12).margin(1e-15));
  }
}

void check_hand_example(GraphRun& run, double factor) {
  const double lr = 0.1 * factor;
  CHECK(run.get("loss")[0] == Approx(2 * std::log(2.0)).epsilon(1e-12));
  CHECK(run.get("correct") == Numbers{1});  // the first class on ties
  check_close(run.get("gradient of w1"), {0.25, 0.25, -0.25, -0.25});
  check_close(run.get("gradient of w0"), {0.5, -0.5, -0.5, 0.5});
  check_close(run.get("gradient of b0"), {0, 0});
  CHECK(run.step_state().out.grad_norm == Approx(std::sqrt(1.25)).epsilon(1e-12));
  CHECK(run.step_state().out.updates == 1);
  CHECK(run.step_state().out.finite == 1);
  check_close(run.get("w0"), {1 - 0.5 * lr, 0.5 * lr, 0.5 * lr, -1 - 0.5 * lr});
  check_close(run.get("w1"), {1 - 0.25 * lr, -1 - 0.25 * lr, -1 + 0.25 * lr, 1 + 0.25 * lr});
}

TEST_CASE("a step of a small network gives the numbers worked out by hand") {
  GraphRun run(mlp_step(2, {2, 2, 2}, DType::f64));
  set_hand_example(run);
  run.set("x", {1, -1, 2, -2});
  run.set("targets", {0, 1});
  run.run_all();
  check_hand_example(run, 1);
}

TEST_CASE("two micro-steps of one sample give the same step as one of two samples") {
  for (const Engine* engine : {&reference_engine(), &overwriting_engine()}) {
    GraphRun run(mlp_step(1, {2, 2, 2}, DType::f64), true, *engine);
    set_hand_example(run);
    for (int i = 0; i < 2; ++i) {
      run.set("x", {1.0 + i, -1.0 - i});
      run.set("targets", {static_cast<double>(i)});
      run.run(Phase::forward, micro_step_of(i, 2));
      run.run(Phase::backward, micro_step_of(i, 2));
    }
    run.run(Phase::update);
    check_hand_example(run, 1);
  }
}

TEST_CASE("clipping scales the whole gradient to the norm that is asked for") {
  GraphRun run(mlp_step(2, {2, 2, 2}, DType::f64));
  set_hand_example(run);
  run.step_state().in.max_grad_norm = 0.5;
  run.set("x", {1, -1, 2, -2});
  run.set("targets", {0, 1});
  run.run_all();
  check_hand_example(run, 0.5 / (std::sqrt(1.25) + 1e-6));
}

TEST_CASE("a step with a gradient that is not finite writes no state, and the op is named") {
  GraphRun run(mlp_step(2, {2, 2, 2}, DType::f64, 0.9));
  set_hand_example(run);
  run.set("x", {1, -1, std::nan(""), -2});
  run.set("targets", {0, 1});
  run.run_all();
  CHECK(run.step_state().out.finite == 0);
  CHECK(run.step_state().out.updates == 0);
  CHECK(run.get("w0") == Numbers{1, 0, 0, -1});
  CHECK(run.get("w1") == Numbers{1, -1, -1, 1});
  CHECK(run.get("momentum of w1") == Numbers{0, 0, 0, 0});
  run.set("x", {1, -1, std::nan(""), -2});
  run.set("targets", {0, 1});
  CHECK(run.find_non_finite(Phase::forward) == "matmul in layers.0 (forward): 2 of 4 values");
  run.set("x", {1, -1, 2, -2});
  run.set("targets", {0, 1});
  CHECK(run.find_non_finite(Phase::forward) == "");
}

TEST_CASE("plans of several graphs share state by name") {
  const Graph training = mlp_step(2, {2, 2, 2}, DType::f64);
  Graph evaluation;
  {
    GraphBuilder b(evaluation);
    const ValueId w1 = b.add_value("w1", {Shape{2, 2}, DType::f64}, Role::parameter);
    const ValueId x = b.add_value("x", {Shape{5, 2}, DType::f64}, Role::input);
    emit_loss(b, b.emit1("matmul", {x, w1}, {{"transpose_b", true}}));
    b.accumulate(b.emit1("exp", {w1}), "only here", Role::metric);
  }
  StateLayout layout;
  layout.add(training);
  const size_t alone = layout.bytes();
  layout.add(evaluation);
  CHECK(layout.bytes() == alone + kMemoryAlignment);  // "only here"; all else is shared
  CHECK(layout.find("nothing") == nullptr);
  CHECK(layout.bytes(Role::parameter) == (4 + 2 + 4 + 2) * sizeof(double));
  for (const StateTensor& tensor : layout.tensors()) CHECK(tensor.offset % kMemoryAlignment == 0);

  const auto device = reference_engine().open(0);
  const ProgramOptions options{.engine = &reference_engine(), .device = device.get()};
  const Program train_program(training, options), eval_program(evaluation, options);
  const Buffer state(*device, layout.bytes());
  const Buffer work(*device, std::max(train_program.work_bytes(), eval_program.work_bytes()));
  const StateAddress place = [&](const GraphValue& value) {
    return state.data() + layout.offset_of(value);
  };
  const Frame train(train_program, place, work.data()), eval(eval_program, place, work.data());
  CHECK(train.address(training.find("w1")) == eval.address(evaluation.find("w1")));
  CHECK(train.address(training.find("loss")) == eval.address(evaluation.find("loss")));

  Graph other;
  GraphBuilder(other).add_value("w1", {Shape{3, 2}, DType::f64}, Role::parameter);
  CHECK_THROWS_WITH(layout.add(other), Contains("f64[2, 2]") && Contains("f64[3, 2]"));
}

TEST_CASE("a plan knows when its memory is fullest, and what fills it") {
  Graph graph;
  GraphBuilder b(graph);
  const auto sum = [&](ValueId x) {
    return b.emit1("reduce", {x}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0}}});
  };
  const ValueId x = b.add_value("x", {Shape{64}, DType::f64}, Role::input);
  const ValueId kept = b.emit1("exp", {x});
  // Four times as large as what comes before and after it.
  const ValueId wide =
      b.emit1("broadcast", {b.emit1("reshape", {kept}, {{"shape", std::vector<int64_t>{1, 64}}})},
              {{"shape", std::vector<int64_t>{4, 64}}});
  const ValueId total = sum(b.emit1("square", {wide}));
  b.accumulate(sum(b.emit1("add", {total, kept})), "sum", Role::metric);
  const GraphRun run(graph, true);
  const Program::PeakMemory peak = run.program().peak_memory();
  REQUIRE(peak.node >= 0);
  CHECK(run.program().graph().nodes[static_cast<size_t>(peak.node)].op->name == "reduce");
  CHECK(peak.bytes == run.program().work_lower_bound());
  size_t live = 0;
  for (const auto& part : peak.live) live += part.bytes;
  CHECK(live == peak.bytes);
  // exp and the squares, in the broadcast's memory, and what reduce makes of them.
  CHECK(peak.bytes == 64 * 8 + 4 * 64 * 8 + 64 * 8);
}

TEST_CASE("an op without a kernel is refused with engine, op and layer") {
  Engine empty = reference_engine();
  empty.name = "empty";
  empty.kernel_count = 0;
  const auto device = reference_engine().open(0);
  try {
    const Program program(mlp_step(2, {3, 2}), {.engine = &empty, .device = device.get()});
    FAIL("it was accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::usage);
    CHECK(error.location() == "layers.0");
    CHECK(std::string(error.what()) ==
          "layers.0: the empty engine has no kernel for matmul(f32[2, 3], f32[2, 3], f32[2]) with "
          "transpose_b=true");
  }
}

// Every value in memory of its own, node after node: what any plan must agree with.
class Unplanned {
 public:
  explicit Unplanned(const Graph& graph) : graph_(graph), memory_(graph.values.size()) {
    for (size_t i = 0; i < memory_.size(); ++i) memory_[i].resize(graph.values[i].spec.bytes());
  }
  void* address(ValueId id) { return memory_[static_cast<size_t>(graph_.storage(id))].data(); }

  void run(Phase phase) {
    const auto device = reference_engine().open(0);
    const auto stream = device->make_stream();
    for (const Node& node : graph_.nodes) {
      if (node.phase != phase) continue;
      const SpecList in = graph_.input_specs(node), out = graph_.output_specs(node);
      const bool adds = node.outputs.size() == 1 && graph_.continues_sum(node.outputs[0]);
      auto found = find_kernel(reference_engine(), {.op = node.op->name,
                                                    .attributes = node.attributes,
                                                    .inputs = in,
                                                    .outputs = out,
                                                    .accumulate = adds,
                                                    .device = *device});
      std::vector<void*> inputs, outputs;
      for (ValueId id : node.inputs) inputs.push_back(id == kNoValue ? nullptr : address(id));
      for (ValueId id : node.outputs) outputs.push_back(address(id));
      std::vector<std::byte> workspace(found.kernel->workspace_bytes());
      BoundCall(*found.kernel, inputs, outputs, workspace.data()).run(*stream);
    }
  }

 private:
  const Graph& graph_;
  std::vector<std::vector<std::byte>> memory_;
};

TEST_CASE("an output keeps its content to the end of the micro-step, also seen as another shape") {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.add_value("x", {Shape{2, 2}, DType::f64}, Role::input);
  const ValueId output =
      b.emit1("reshape", {b.emit1("exp", {x})}, {{"shape", std::vector<int64_t>{4}}});
  graph.value(output).role = Role::output;
  ValueId y = output;
  for (int i = 0; i < 4; ++i) y = b.emit1("square", {y});  // each would overwrite the one before
  b.accumulate(b.emit1("reduce", {y}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0}}}), "sum",
               Role::metric);
  verify_graph(graph);
  GraphRun run(std::move(graph));
  run.set(x, {0, 1, -1, 2});
  run.run(Phase::forward);
  CHECK(run.get(output) == Numbers{1, std::exp(1.0), std::exp(-1.0), std::exp(2.0)});
}

TEST_CASE("sharing memory between values never changes a result") {
  int shared = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    RandomGraph random(seed, DType::f64);
    Graph graph = random.graph();
    reverse(graph, random.losses(), random.parameters());
    GraphRun planned(graph);
    planned.fill(seed);
    planned.step_state().out.loss_scale = 1;
    planned.step_state().in.inverse_valid = 0.25;
    Unplanned unplanned(graph);
    for (ValueId id = 0; id < static_cast<ValueId>(graph.values.size()); ++id) {
      const GraphValue& value = graph.value(id);
      if (value.producer >= 0) continue;
      std::memcpy(unplanned.address(id), planned.frame().address(id), value.spec.bytes());
    }
    size_t separate = 0;
    for (const GraphValue& value : graph.values) {
      const bool own = value.storage_of == kNoValue && !rules_of(value.role).persistent;
      separate += own ? align_up(value.spec.bytes()) : 0;
    }
    shared += planned.program().work_bytes() < separate / 2;
    for (Phase phase : {Phase::forward, Phase::backward}) {
      planned.run(phase);
      unplanned.run(phase);
    }
    for (Role role : {Role::metric, Role::gradient}) {
      for (ValueId id : graph.with_role(role)) {
        const size_t bytes = graph.value(id).spec.bytes();
        CHECK(std::memcmp(planned.frame().address(id), unplanned.address(id), bytes) == 0);
      }
    }
  }
  CHECK(shared > 10);  // the planner had something to share
}

}  // namespace
}  // namespace dltrain

#include "passes/data_parallel.h"

#include "catch.h"
#include "graph/builder.h"
#include "run_graph.h"
#include "state_spec.h"

namespace dltrain {
namespace {

Mesh data_ranks(int ranks) {
  return Mesh({{mesh_axes::kShard, ranks}});
}

// Three gradients of 16 floats (64 bytes, 256 with alignment) in the order c, b, a of production,
// a statistic and a metric from the forward, and an update that reads all of them.
Graph training_example_data_parallel() {
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
  const Graph after =
      data_parallel(training_example_data_parallel(), {.mesh = data_ranks(2), .bucket_bytes = 512});
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
        "  %12 = gradient_norm(step_state, %22, %23, %24) : " +
            kStateSpec +
            "\n"
            "  %13 = sgd_update(%12, p, %23) {count=1} : f32[16]\n"
            "  %14 = sqrt(%20) : f32[16]\n");
}

// Group of `size` ranks that all hold the same: a sum is size times the data.
class SameEverywhere final : public Collectives {
 public:
  explicit SameEverywhere(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  void wait(Ticket ticket, Stream&) override { waited.push_back(ticket); }
  void barrier() override {}

  std::vector<size_t> bytes;  // of each message
  std::vector<Ticket> waited;

 private:
  Ticket queue(const CollectiveCall& c, Stream&) override {
    if (c.kind != CollectiveKind::all_reduce) fail(ExitCode::internal, "not a reduction");
    bytes.push_back(c.bytes());
    for (size_t i = 0; i < c.count; ++i) {
      if (c.dtype == DType::f32) static_cast<float*>(c.output)[i] *= static_cast<float>(size_);
      if (c.dtype == DType::f64) static_cast<double*>(c.output)[i] *= size_;
    }
    return ++begun_;
  }
  Ticket begun_ = 0;
  int size_;
};

TEST_CASE("one rank, and a graph that is reduced already, come back unchanged") {
  const Graph before = training_example_data_parallel();
  CHECK(print_graph(data_parallel(before, {.mesh = data_ranks(1)})) == print_graph(before));
  const Graph once = data_parallel(before, {.mesh = data_ranks(2)});
  CHECK(print_graph(data_parallel(once, {.mesh = data_ranks(2)})) == print_graph(once));
}

TEST_CASE("a fixed order combines the micro-steps of a bucket before it leaves") {
  DataParallelOptions options{
      .mesh = data_ranks(2), .fixed = true, .micro_steps = 4, .micro_batch = 3};
  const Graph after = data_parallel(training_example_data_parallel(), options);
  int sums = 0;
  for (size_t i = 0; i < after.nodes.size(); ++i) {
    const Node& node = after.nodes[i];
    if (node.op->name != "tree_sum") continue;
    ++sums;
    CHECK_FALSE(node.once_per_step);
    CHECK(node.attributes.integer("levels") == 2);
    const Node& next = after.nodes[i + 1];
    CHECK(next.op->name == "all_reduce_begin");
    CHECK(next.inputs.front() == node.outputs.front());
  }
  CHECK(sums == 3);  // a statistic, a metric, all gradients
  options.mesh = data_ranks(1);
  const Graph alone = data_parallel(training_example_data_parallel(), options);
  CHECK(print_graph(alone).find("all_reduce") == std::string::npos);
  options.micro_steps = 1;
  CHECK(print_graph(data_parallel(training_example_data_parallel(), options)) ==
        print_graph(training_example_data_parallel()));
  options = {.mesh = data_ranks(2), .fixed = true, .micro_steps = 3};
  CHECK_THROWS_AS(data_parallel(training_example_data_parallel(), options), Error);
}

TEST_CASE("gradients that travel in bf16 are rounded before and f32 after, in their own memory") {
  const Graph after = data_parallel(training_example_data_parallel(),
                                    {.mesh = data_ranks(2), .reduce_dtype = DType::bf16});
  const ValueId wide = after.find("reduced.a");
  REQUIRE(wide != kNoValue);
  CHECK(after.value(wide).spec.dtype == DType::f32);
  const auto group_offsets = after.group_offsets();
  CHECK(group_offsets[static_cast<size_t>(wide)].window);
  CHECK(group_offsets[static_cast<size_t>(wide)].group ==
        group_offsets[static_cast<size_t>(after.find("a"))].group);
  for (const Node& node : after.nodes) {
    if (node.op->name != "all_reduce_begin") continue;
    const GraphValue& sum = after.value(node.inputs.front());
    CHECK((sum.role == Role::activation) == (sum.spec.dtype == DType::bf16));
  }
}

TEST_CASE("a tensor larger than a bucket travels alone") {
  const Graph after =
      data_parallel(training_example_data_parallel(), {.mesh = data_ranks(2), .bucket_bytes = 1});
  int begins = 0;
  for (const Node& node : after.nodes) {
    if (node.op->name != "all_reduce_begin") continue;
    CHECK(node.inputs.size() == 1);
    CHECK(node.attributes.integer("slot") == begins++);
  }
  CHECK(begins == 5);
}

TEST_CASE("tensors of a bucket lie in order, and may be empty") {
  SameEverywhere group(2);
  const auto device = reference_engine().open(0);
  const auto stream = device->make_stream();
  const Attributes slot{{"slot", int64_t{0}}};
  const SpecList specs{{Shape{0}, DType::f32}, {Shape{3}, DType::f32}, {Shape{0}, DType::f32}};
  Collectives::Ticket ticket = 0;
  const auto found = find_kernel(reference_engine(), {.op = "all_reduce_begin",
                                                      .attributes = slot,
                                                      .inputs = specs,
                                                      .outputs = specs,
                                                      .device = *device,
                                                      .collectives = &group});
  std::vector<float> data(16, 1.0f);
  void* const in_order[] = {data.data(), data.data(), data.data() + 8};
  BoundCall(*found.kernel, in_order, in_order, nullptr, &ticket).run(*stream);
  CHECK(group.bytes == std::vector<size_t>{8 * sizeof(float)});
  CHECK((data[2] == 2.0f && data[8] == 1.0f));
  void* const crossed[] = {data.data(), data.data() + 8, data.data() + 4};
  CHECK_THROWS_AS(BoundCall(*found.kernel, crossed, crossed, nullptr, &ticket).run(*stream), Error);
}

TEST_CASE("without an update the sums are waited for at the end of the last micro-step") {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.add_value("x", {Shape{1}, DType::f64}, Role::input);
  b.accumulate(b.emit1("exp", {x}), "loss", Role::metric);
  b.accumulate(b.emit1("square", {x}), "correct", Role::metric);
  b.emit1("sqrt", {x});
  const Graph after = data_parallel(graph, {.mesh = data_ranks(4)});
  CHECK(print_graph(after) ==
        "forward:\n"
        "  loss = exp(x) : f64[1]\n"
        "  correct = square(x) : f64[1]\n"
        "  %4, %5 = all_reduce_begin(loss, correct) {slot=0} : f64[1], f64[1]  @last\n"
        "  %3 = sqrt(x) : f64[1]\n"
        "  %6, %7 = all_reduce_end(%4, %5) {slot=0} : f64[1], f64[1]  @last\n");

  SameEverywhere group(4);
  GraphRun run(after, true, reference_engine(), &group);
  run.set("x", {1.0});
  run.run(Phase::forward, MicroStep::first);
  run.set("x", {3.0});
  run.run(Phase::forward, MicroStep::middle);
  CHECK(group.bytes.empty());
  CHECK(run.get("correct") == std::vector<double>{10});
  run.set("x", {5.0});
  run.run(Phase::forward, MicroStep::last);
  CHECK(run.get("correct") == std::vector<double>{140});  // 4 · (1 + 9 + 25)
  // One message from the first sum to the end of the last, alignment gap included.
  CHECK(group.bytes == std::vector<size_t>{kMemoryAlignment + sizeof(double)});
  CHECK(group.waited == std::vector<Collectives::Ticket>{1});
}

TEST_CASE("the update reads the sums over all ranks") {
  SameEverywhere group(3);
  const Graph after = data_parallel(training_example_data_parallel(), {.mesh = data_ranks(3)});
  GraphRun alone(training_example_data_parallel()),
      together(after, false, reference_engine(), &group);
  for (GraphRun* run : {&alone, &together}) {
    run->fill(1);
    run->step_state().out.loss_scale = 1;
    run->run_all();
  }
  CHECK(together.step_state().out.grad_norm ==
        Approx(3 * alone.step_state().out.grad_norm).epsilon(1e-6));
  CHECK(group.waited == std::vector<Collectives::Ticket>{1, 2, 3});
}

}  // namespace
}  // namespace dltrain

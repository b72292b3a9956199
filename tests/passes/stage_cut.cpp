#include "passes/stage_cut.h"

#include <cstring>
#include <mutex>

#include "catch.h"
#include "comm/mesh.h"
#include "graph/examples.h"
#include "graph/frame.h"
#include "graph/state_layout.h"
#include "ops/step_state.h"
#include "reference/engine.h"
#include "run/rank_threads.h"

namespace dltrain {
namespace {

constexpr int64_t kSteps = 3, kMicroBatches = 4, kSamples = 2;
const std::vector<int64_t> kSizes{6, 8, 7, 5};

// A training step with one update node for each parameter, as optimizers emit them.
Graph whole_step() {
  Graph graph = mlp_step(kSamples, kSizes, DType::f32, 0.9);
  const Node packed = graph.nodes.back();
  graph.nodes.pop_back();
  const auto count = static_cast<size_t>(packed.attributes.integer("count"));
  for (size_t i = 0; i < count; ++i) {
    Node node = packed;
    node.attributes = {{"momentum", packed.attributes.number("momentum")}};
    node.inputs = {packed.inputs[0]};
    node.outputs.clear();
    for (size_t k = 1 + i; k < packed.inputs.size(); k += count) {
      node.inputs.push_back(packed.inputs[k]);
    }
    for (size_t k = i; k < packed.outputs.size(); k += count) {
      node.outputs.push_back(packed.outputs[k]);
    }
    graph.nodes.push_back(node);
  }
  graph.update_producers();
  return graph;
}

// The state after the steps, by name, and the loss of each step.
struct Trained {
  std::map<std::string, std::vector<std::byte>> state;
  std::vector<double> losses;
};

// Trains a graph, or the part of a stage, with so many micro-batches in flight.
Trained train_graph(const Graph& graph, int64_t in_flight, Collectives* ranks = nullptr) {
  const auto device = reference_engine().open(0);
  const auto stream = device->make_stream();
  std::unique_ptr<const MeshGroups> groups;
  if (ranks != nullptr) {
    groups = std::make_unique<const MeshGroups>(*ranks, Mesh({{mesh_axes::kPipeline, 2}}),
                                                std::set<std::string>{mesh_axes::kPipeline});
  }
  const Program program(graph, {.engine = &reference_engine(),
                                .device = device.get(),
                                .collectives = ranks,
                                .groups = groups.get(),
                                .several_micro_steps = true});
  StateLayout layout;
  layout.add(graph);
  const Buffer state(*device, layout.bytes());
  const StepSchedule schedule = step_schedule(kMicroBatches, in_flight);
  const Buffer work(*device, frames_of(schedule) * program.work_bytes());
  std::vector<Frame> frames;
  for (size_t i = 0; i < frames_of(schedule); ++i) {
    frames.emplace_back(
        program, [&](const GraphValue& value) { return state.data() + layout.offset_of(value); },
        work.data() + i * program.work_bytes());
  }
  // The same weights for any cut: a function of the name.
  for (const StateTensor& tensor : layout.tensors()) {
    if (tensor.role != Role::parameter) continue;
    auto* values = reinterpret_cast<float*>(state.data() + tensor.offset);
    for (int64_t i = 0; i < tensor.spec.shape.elements(); ++i) {
      values[i] = random_uniform(7, random_stream(tensor.name), 0, static_cast<uint64_t>(i)) - 0.5f;
    }
  }
  auto& step_state = *static_cast<StepState*>(frames[0].address(graph.step_state));
  step_state.out.loss_scale = 1;
  step_state.in = {.seed = 1,
                   .step = 0,
                   .sample_offset = 0,
                   .learning_rate = 0.2,
                   .inverse_valid = 1.0 / (kMicroBatches * kSamples),
                   .max_grad_norm = 0};
  Trained out;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (const ScheduledSegment& segment : schedule) {
      Frame& frame = frames[segment.frame];
      if (segment.segment == Phase::forward) {
        const auto number = static_cast<uint64_t>(step * kMicroBatches + segment.micro_batch);
        auto* x = static_cast<float*>(frame.address(graph.find("x")));
        for (int64_t i = 0; i < kSamples * kSizes[0]; ++i) {
          x[i] = random_uniform(9, number, 0, static_cast<uint64_t>(i)) - 0.5f;
        }
        auto* targets = static_cast<int32_t*>(frame.address(graph.find("targets")));
        for (int64_t i = 0; i < kSamples; ++i) {
          targets[i] = static_cast<int32_t>(number + static_cast<uint64_t>(i)) % 5;
        }
      }
      frame.run(segment.segment, segment.variant, *stream);
    }
    if (layout.find("loss") == nullptr) continue;
    double loss = 0;
    std::memcpy(&loss, state.data() + layout.find("loss")->offset, sizeof loss);
    out.losses.push_back(loss);
  }
  for (const StateTensor& tensor : layout.tensors()) {
    if (!rules_of(tensor.role).checkpointed) continue;
    const std::byte* at = state.data() + tensor.offset;
    out.state[tensor.name] = {at, at + tensor.spec.bytes()};
  }
  CHECK(step_state.out.updates == kSteps);
  return out;
}

TEST_CASE("an MLP on two stages has the losses and weights of one rank, to the bit") {
  const Trained whole = train_graph(whole_step(), 1);
  REQUIRE(whole.losses.size() == kSteps);
  CHECK(whole.losses.back() < whole.losses.front());
  for (int64_t in_flight : {int64_t{1}, int64_t{2}, kMicroBatches}) {
    INFO(in_flight << " micro-batches in flight");
    std::mutex mutex;
    std::array<Trained, 2> stages;
    run_rank_threads(2, [&](ThreadCollectives& ranks) {
      const Graph part = stage_cut(whole_step(), {.stage = ranks.rank(), .second = "layers.1"});
      Trained trained = train_graph(part, in_flight, &ranks);
      const std::lock_guard lock(mutex);
      stages[static_cast<size_t>(ranks.rank())] = std::move(trained);
    });
    CHECK(stages[0].losses.empty());
    CHECK(stages[1].losses == whole.losses);
    std::map<std::string, std::vector<std::byte>> state = stages[0].state;
    for (const auto& [name, bytes] : stages[1].state) CHECK(state.emplace(name, bytes).second);
    CHECK(state == whole.state);
  }
}

TEST_CASE("a stage has its own layers, parameters and update, and messages in both directions") {
  const Graph first = stage_cut(whole_step(), {.stage = 0, .second = "layers.1"});
  const Graph second = stage_cut(whole_step(), {.stage = 1, .second = "layers.1"});
  const auto names = [](const Graph& graph, Role role) {
    std::string out;
    for (ValueId id : graph.with_role(role)) {
      if (graph.value(id).storage_of == kNoValue) out += graph.value(id).name + " ";
    }
    return out;
  };
  CHECK(names(first, Role::parameter) == "w0 b0 ");
  CHECK(names(second, Role::parameter) == "w1 b1 w2 b2 ");
  CHECK(names(second, Role::metric) == "loss correct ");
  const auto ops = [](const Graph& graph, Phase phase) {
    std::string out;
    for (const Node& node : graph.nodes) {
      if (node.phase == phase) out += std::string(node.op->name) + " ";
    }
    return out;
  };
  CHECK(ops(first, Phase::forward) == "matmul send_begin send_end ");
  CHECK(ops(first, Phase::backward).starts_with("receive_begin receive_end "));
  CHECK(ops(second, Phase::forward).starts_with("receive_begin receive_end relu matmul "));
  CHECK(ops(second, Phase::backward).ends_with("send_end "));
  CHECK(ops(first, Phase::update) ==
        "sum_of_squares all_reduce_begin all_reduce_end gradient_norm_of sgd_update sgd_update ");
}

TEST_CASE("a cut that stages cannot have is refused") {
  CHECK_THROWS_AS(stage_cut(whole_step(), {.stage = 0, .second = "layers.9"}), Error);
}

}  // namespace
}  // namespace dltrain

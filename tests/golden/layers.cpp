// Single layers against PyTorch: values, gradients of the input and of every parameter. The numbers
// are recorded by scripts/record_golden_layers.py, which says what the files hold.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "catch.h"
#include "cpu/engine.h"
#include "graph/reverse.h"
#include "max_or_inf.h"
#include "nn/read_model.h"
#include "passes/lower_recurrent.h"
#include "run_graph.h"
#include "tensor/safetensors.h"

namespace dltrain {
namespace {

using Numbers = std::vector<double>;

template <typename T>
Numbers in_doubles(std::span<const std::byte> data) {
  std::vector<T> values(data.size() / sizeof(T));
  std::memcpy(values.data(), data.data(), data.size());
  return Numbers(values.begin(), values.end());
}

Numbers read(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry& entry = file.at(name);
  switch (entry.spec.dtype) {
    case DType::f32:
      return in_doubles<float>(file.data(entry));
    case DType::f64:
      return in_doubles<double>(file.data(entry));
    default:
      return in_doubles<int32_t>(file.data(entry));
  }
}

// A tensor of the file in the order of memory.
Numbers in_memory_order(const ParameterInfo& info, const Numbers& file) {
  std::vector<float> places(file.size()), from(file.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<float>(i);
  file_to_memory(info, places, from);
  Numbers memory;
  for (float place : from) memory.push_back(file[static_cast<size_t>(place)]);
  return memory;
}

// The greatest difference, relative to the greatest number.
double difference(const Numbers& found, const Numbers& expected) {
  REQUIRE(found.size() == expected.size());
  double worst = 0, greatest = 1e-30;
  for (size_t i = 0; i < found.size(); ++i) {
    worst = max_or_inf(worst, std::abs(found[i] - expected[i]));
    greatest = std::max(greatest, std::abs(expected[i]));
  }
  return worst / greatest;
}

// The graph of sum(layer(x)·dy) and its gradients.
struct LayerGraph {
  Graph graph;
  std::vector<ParameterInfo> parameters;

  LayerGraph(const Layer& layer, const TensorSpec& x_spec, DType compute) {
    GraphBuilder builder(graph);
    LayerContext context(builder, true, compute, 1);
    const bool floating = is_floating(x_spec.dtype);
    const ValueId x = builder.add_value("x", {x_spec.shape, floating ? compute : x_spec.dtype},
                                        floating ? Role::parameter : Role::input);
    builder.set_layer("layer");
    const ValueId y = layer.emit(context, x);
    const TensorSpec spec = builder.spec(y);
    const ValueId dy = builder.add_value("dy", spec, Role::input);
    std::vector<int64_t> axes;
    for (int i = 0; i < spec.shape.rank(); ++i) axes.push_back(i);
    ValueId sum =
        builder.emit1("reduce", {builder.emit1("mul", {y, dy})}, {{"kind", "sum"}, {"axes", axes}});
    if (builder.spec(sum).dtype != DType::f64) {
      sum = builder.emit1("cast", {sum}, {{"dtype", "f64"}});
    }
    builder.accumulate(builder.emit1("identity", {y}), "y", Role::statistic);
    graph = lower_recurrent(std::move(graph), {}, true);
    reverse(graph, {sum}, graph.with_role(Role::parameter));
    parameters = context.parameters();
    verify_graph(graph);
  }
};

struct Precision {
  const Engine& engine;
  DType dtype;
  double tolerance;
};

void check_case(const SafetensorsFile& file, const std::string& name, const std::string& layer,
                const Precision& precision) {
  ModelConfig model;
  REQUIRE(read_model("layers: [" + layer + "]", model) == "");
  LayerGraph made(*model.layers.front(), file.at(name + ".x").spec, precision.dtype);
  const bool has_dx = file.find(name + ".dx") != nullptr;
  GraphRun run(std::move(made.graph), false, precision.engine);
  run.set("x", read(file, name + ".x"));
  run.set("dy", read(file, name + ".dy"));
  const auto short_name = [](const ParameterInfo& p) { return p.name.substr(6); };  // "layer."
  for (const ParameterInfo& p : made.parameters) {
    if (p.role != Role::parameter) continue;
    run.set(p.name, in_memory_order(p, read(file, name + ".value." + short_name(p))));
  }
  run.step_state() = StepState{};
  run.step_state().out.loss_scale = run.step_state().in.inverse_valid = 1;
  run.step_state().out.finite = 1;
  run.run(Phase::forward);
  run.run(Phase::backward);
  CHECK(difference(run.get("y"), read(file, name + ".y")) < precision.tolerance);
  if (has_dx) {
    CHECK(difference(run.get("gradient of x"), read(file, name + ".dx")) < precision.tolerance);
  }
  for (const ParameterInfo& p : made.parameters) {
    if (p.role != Role::parameter) continue;
    INFO(p.name);
    const Numbers expected = read(file, name + ".gradient." + short_name(p));
    CHECK(difference(run.get("gradient of " + p.name), in_memory_order(p, expected)) <
          precision.tolerance);
  }
}

// f64: roundings of sums of a few hundred terms. f32: 1e-5 is what layers are held to.
TEST_CASE("every recorded layer gives PyTorch's values and gradients") {
  size_t cases = 0;
  const std::filesystem::path folder = DLTRAIN_SOURCE_DIR "/tests/golden/layers";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const SafetensorsFile file(entry.path(), ExitCode::data);
    for (const auto& [name, layer] : file.metadata()) {
      if (name == "format") continue;
      ++cases;
      INFO(entry.path().filename().string() << ", " << name << ": " << layer);
      check_case(file, name, layer, {reference_engine(), DType::f64, 1e-12});
      check_case(file, name, layer, {cpu_engine(), DType::f32, 1e-5});
    }
  }
  CHECK(cases >= 70);
}

}  // namespace
}  // namespace dltrain
